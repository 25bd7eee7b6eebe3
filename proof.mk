# The targets of the proof: one for each engine, and what makes pages of their figures. `go doc ./internal/proof` says which engine
# holds what. OUT is a folder: each target writes its figures there, `make pages OUT=folder` puts them into the docs.
# A failure prints its seed; SEED, for the simulators together with PROFILE, replays it.

SEED    ?=
PROFILE ?=
OUT     ?=

# All of it is of the newest versions, as `make test`.
sim virtual fleet matrix bugs mutate shake fuzz: export GOFLAGS := $(GOFLAGS) $(NEWEST)

# Simulated years of the decisions. Each profile is played at least once, however small YEARS is. PROFILE is a profile, or how the
# names of some begin: PROFILE=random runs those that each seed draws anew.
YEARS ?= 3

.PHONY: sim
sim: ## Simulate years of the decisions alone; YEARS, PROFILE, SEED, OUT
	$(GO) run ./internal/proof/cmd/sim $(if $(SEED),-seed $(SEED),-years $(YEARS)) $(if $(PROFILE),-profile '$(PROFILE)') $(if $(OUT),-json $(OUT)/sim$(if $(filter random,$(PROFILE)),-random).json)

# Simulated days of the full stack. WALL=2m bounds the real time: the runs of DAYS that begin within it are made.
DAYS ?= 30
WALL ?=

.PHONY: virtual
virtual: ## Run days of the full stack in virtual time; DAYS, WALL, PROFILE, SEED, OUT
	$(GO) run ./internal/proof/cmd/virtual -days $(DAYS) $(if $(WALL),-wall $(WALL)) $(if $(SEED),-seed $(SEED)) $(if $(PROFILE),-profile '$(PROFILE)') $(if $(OUT),-json $(OUT)/virtual.json)

# Fleets of real processes on real servers. HOURS is shared by the stages, STAGES chooses among them.
HOURS  ?= 0.05
STAGES ?=

.PHONY: fleet
fleet: setup ## Plague fleets of real processes on real servers; HOURS, SEED, STAGES, OUT
	$(GO) run ./internal/proof/cmd/fleet -hours $(HOURS) $(if $(SEED),-seed $(SEED)) $(if $(STAGES),-stages '$(STAGES)') $(if $(OUT),-json $(OUT)/fleet.json)

.PHONY: matrix
matrix: setup ## Run the script and scenario suites on this redis-server, Redis 8.0 and Valkey 8.1; SUITES chooses, OUT
	@./tools/install-servers.sh
	$(GO) run ./internal/proof/cmd/matrix $(if $(SUITES),-suites $(SUITES)) $(if $(OUT),-json $(OUT)/matrix.json)

.PHONY: bugs
bugs: setup ## Break the product on purpose, bug by bug: each must be caught by its test; BUG=text chooses by name, PART=1/2 a share, WORKERS, OUT
	$(GO) run ./internal/proof/cmd/bugs $(if $(BUG),-bug '$(BUG)') $(if $(PART),-part $(PART)) $(if $(WORKERS),-workers $(WORKERS)) $(if $(OUT),-json $(OUT)/bugs.json)

# What is broken by machine: lease, membership, schedule, cron, term, lua-lease, lua-tasks, lua-registry, or all. term builds
# the whole package for each mutant, which takes its time.
TARGETS ?=

.PHONY: mutate
mutate: ## Break each comparison, condition and constant of the rules in turn: a short test must notice; TARGETS, WORKERS, OUT
	$(GO) run ./internal/proof/cmd/mutate $(if $(TARGETS),-targets $(TARGETS)) $(if $(WORKERS),-workers $(WORKERS)) $(if $(OUT),-json $(OUT)/mutate.json)

# Tests that fail once in thousands of runs fail much more often here. RUN chooses among them.
RUNS ?= 3

.PHONY: shake
shake: ## Run tests of a product whose goroutines yield at random before each statement; RUNS, RUN, PACKAGES
	$(GO) run ./internal/proof/cmd/shake -runs $(RUNS) $(if $(RUN),-run '$(RUN)') $(if $(filter command% environment%,$(origin PACKAGES)),-packages '$(PACKAGES)')

FUZZ_TIME ?= 10s

.PHONY: fuzz
fuzz: ## Fuzz every parser in turn, for FUZZ_TIME each
	@./tools/fuzz.sh $(FUZZ_TIME)

.PHONY: pages
pages: ## Write the figures of a folder, OUT, into docs/proof.md and docs/guarantees.md
	@./tools/pages.sh $(OUT)
