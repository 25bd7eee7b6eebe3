# Everything a contributor and CI run. `make` alone lists the targets.

.DEFAULT_GOAL := help
MAKEFLAGS     += --no-print-directory

GO ?= go

# Every module of the repository, but for tools/lint, which only pins what `make lint` runs.
MODULES ?= $(shell find . \( -name .git -o -name bin -o -name testdata -o -path ./tools/lint \) -prune \
	-o -name go.mod -exec dirname {} \; | sort)

# Flags of the test runs; add to them with ARGS='-run TestP4 -v'. Timeouts are
# per package. A suite that starts servers is never answered from the cache. `make lint` vets the library.
# The Lua of miniredis runs under its lock and is none of ours: the race detector does not watch it, which is a tenth of the
# processor's time.
RACE          ?= $(if $(filter 1,$(shell $(GO) env CGO_ENABLED)),-race -gcflags=github.com/yuin/gopher-lua/...=-race=false,$(warning no C compiler: testing without the race detector))
TEST_TIMEOUT  ?= 16m
SHORT_TIMEOUT ?= 8m
TEST_FLAGS    ?= $(RACE) -count=1 -timeout=$(TEST_TIMEOUT)
SHORT_FLAGS   ?= -short -count=1 -vet=off -timeout=$(SHORT_TIMEOUT)
COVER_FLAGS   ?= -count=1 -timeout=$(TEST_TIMEOUT)
ARGS          ?=

# Packages that are tested without the race detector, but for the nightly run, which has UNRACED=none: those without a goroutine,
# those that read sources, and the modules that nobody imports. Most of the time of their tests is that of compiling what they depend on, which `make lint`
# needs without it, too.
ROOT    := github.com/tenure-go/tenure
UNRACED ?= (/internal/(cron|lease|membership|schedule|proof/(house|oracle|sim|cmd/.*))|^$(ROOT)/(bench|cmd|deploy|examples/fencing-sql|tools|tenurehttp/browsertest)(/.*)?)$$

# Tests that hold scripts and suites to account, or play many roles, thousands of tasks or days of them: the race detector slows them
# down five- to tenfold and sees nothing that it does not see in the others of their packages; and those that count allocations, to which it
# adds its own, or what Redis spends. They run without it; the nightly run plays those with it that it does not distort.
RACELESS := TestEveryLeaseRuleIsTested|TestHooksOfTheClientThatFail|TestSpreadWhileWorkDrains|TestSpreadOfMany|TestEndsThatWaitAreBounded|TestRunAllCatchesUpAndIsDone|TestListingIsTruncated|TestListingOfManyBytesIsTruncated|TestP10_HourlyTaskUnderRandomFailovers|TestScriptsCarryWhatTheyNeed|TestVirtualNoticesBrokenScripts|TestVirtualReplay|TestVirtualTriggerExpires|TestAllocations|TestAllocationsOfARun|TestIsLeaderAllocatesNothing|TestRegistryCost|TestRegistryRulesAreTested|TestControlRolesOfOneThatLeadsMany|TestRolesThatHangLeaveRoom|TestTardyAgain|TestClientThatRefusesPipelines|TestRedisClockSteps|TestP9_OutageOfRedis|TestP10_DailyTaskWithShortLivedLeaders|TestVirtualAsks|TestVirtualP1_ClockRates|TestVirtualP1_ForeignClientOnTheSameKeyNeverBoth|TestFramesOfAServer
SKIP     = $(if $(filter -race,$(TEST_FLAGS)),$(if $(filter none,$(UNRACED)),,-skip='^($(RACELESS))$$'))
RACELESS_PACKAGES := . ./internal/redisstore ./internal/proof/virtual

# Compilers and tests make much garbage and keep little: this saves a sixth of a compiler's time of the processor, and a tenth of a test's.
# What measures leaves it alone.
ahead test test-short floor lint bugs: export GOGC ?= 400

# Go benchmarks to run, for how long each, how often.
BENCH         ?= .
BENCH_TIME    ?= 1s
BENCH_COUNT   ?= 1
BENCH_TIMEOUT ?= 20m
BENCH_FLAGS   ?= -bench='$(BENCH)' -benchmem -benchtime=$(BENCH_TIME) -count=$(BENCH_COUNT) -timeout=$(BENCH_TIMEOUT)

# How long the demo runs, e.g. FOR=20s. Empty: until Ctrl-C.
FOR ?=

# Fails `make cover` if a package is below this percentage. The short tests alone reach 90 to 100.
COVER_MIN ?= 90
export COVER_MIN

# Modules are built as an importer builds them; the workspace is for editors.
export GOWORK := off
# Nothing built here is shipped, and git refuses to stamp another user's checkout.
export GOFLAGS := $(GOFLAGS) -buildvcs=false

# go.mod asks for the lowest versions that pass, and Go and go-redis of importers are mostly newer:
# the tests run with those of tools/newest.mod, and `make floor` with those of go.mod.
NEWEST   ?= -modfile=$(CURDIR)/tools/newest.mod
FLOOR_GO ?= go1.25.0
PACKAGES ?= ./...
RUN      ?=

# Shell: the packages of a module that the race detector watches, and the others.
split = packages=$$($(GO) list ./...) && raced=$$(echo "$$packages" | grep -vE '$(UNRACED)' || :) && unraced=$$(echo "$$packages" | grep -E '$(UNRACED)' || :)

# $(call each,COMMAND) runs COMMAND in every module, in all of them before it fails. $$newest are
# the flags for the newest versions: of the root, since the other modules ask for them themselves.
define each
@failed=; for module in $(MODULES); do \
	echo "==> $$module"; newest=; [ "$$module" != . ] || newest="$(NEWEST)"; \
	(cd "$$module" && $(1)) || failed="$$failed $$module"; \
done; \
if [ -n "$$failed" ]; then echo "failed in:$$failed" >&2; exit 1; fi
endef

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Run a small fleet with an embedded Redis; FOR=20s ends it after that
	cd cmd/tenure && $(GO) run . demo $(if $(FOR),--for $(FOR))

.PHONY: test
test: setup ## Test every module, mostly with the race detector, on real redis-servers too
	$(call each,$(split) && status=0; \
		[ -z "$$newest" ] || newest="$$newest -vet=off"; \
		[ -z "$$raced" ] || $(GO) test $$newest $(TEST_FLAGS) $(SKIP) $(ARGS) $$raced || status=1; \
		[ -z "$$unraced" ] || $(GO) test $$newest $(filter-out $(RACE),$(TEST_FLAGS)) $(ARGS) $$unraced || status=1; \
		[ "$$module$(filter -race,$(TEST_FLAGS))" != .-race ] || \
			$(GO) test $$newest $(filter-out $(RACE),$(TEST_FLAGS)) -run='^($(RACELESS))$$' $(ARGS) $(RACELESS_PACKAGES) || status=1; \
		[ $$status = 0 ])

.PHONY: test-short
test-short: ## Test what needs nothing but Go, without the race detector
	$(call each,$(GO) test $(SHORT_FLAGS) $(ARGS) ./...)

.PHONY: floor
floor: ## Test with the lowest Go and go-redis; what needs a server is skipped, RUN and PACKAGES choose
	GOTOOLCHAIN=$(FLOOR_GO) $(GO) test $(SHORT_FLAGS) $(if $(RUN),-run='$(RUN)') $(ARGS) $(PACKAGES)

.PHONY: cover
cover: setup ## Print the coverage of the library; fails below COVER_MIN
	@./tools/cover.sh $(COVER_FLAGS) $(ARGS)

# How many rounds `make bench` plays; ONLY names sections, separated by commas, and leaves the page as it is.
BENCH_ROUNDS ?= 5
ONLY         ?=

.PHONY: bench
bench: setup ## Measure tenure beside the bare commands and other libraries; writes docs/performance.md; BENCH_ROUNDS, ONLY
	cd bench && $(GO) run ./performance -rounds $(BENCH_ROUNDS) -commit "$$(git rev-parse --short HEAD 2>/dev/null || echo unknown)" \
		$(if $(ONLY),-only '$(ONLY)',-o '$(abspath docs/performance.md)')

# How many instances `make scale` starts: as many as the limit of open files allows, at most 10,000. ONLY names sections, as above.
INSTANCES ?=

.PHONY: scale
scale: setup ## Measure what thousands of instances cost one Redis and a Cluster; writes docs/scale.md; INSTANCES, ONLY
	cd bench && $(GO) run ./scale $(if $(INSTANCES),-instances $(INSTANCES)) -commit "$$(git rev-parse --short HEAD 2>/dev/null || echo unknown)" \
		$(if $(ONLY),-only '$(ONLY)',-o '$(abspath docs/scale.md)')

.PHONY: benchmarks
benchmarks: setup ## Run the Go benchmarks; BENCH, BENCH_TIME and BENCH_COUNT choose
	$(call each,$(GO) test -run='^$$' $(BENCH_FLAGS) $(ARGS) ./...)

# Where `make compare` writes, how often it plays each scenario, and what places the faults.
COMPARE_PAGE ?= docs/comparison.md
COMPARE_RUNS ?= 5
COMPARE_SEED ?= 1

.PHONY: compare
compare: setup ## Put tenure and four other libraries through the same faults; writes docs/comparison.md
	cd bench && $(GO) run ./compare -n $(COMPARE_RUNS) -seed $(COMPARE_SEED) -o '$(abspath $(COMPARE_PAGE))' \
		-commit "$$(git rev-parse --short HEAD 2>/dev/null || echo unknown)"

.PHONY: screens
screens: setup ## Take the pictures of the status page in docs/images
	cd tenurehttp/browsertest && $(GO) test -count=1 -run '^TestScreens$$' -screens '$(CURDIR)/docs/images' .

# The tools are built again when their versions or Go's change.
LINT_TOOLS = bin/.lint-$(shell $(GO) env GOVERSION)

bin/.lint-%: tools/lint/go.mod tools/lint/go.sum
	@echo 'building the lint tools, once: a minute or two'
	@mkdir -p bin
	@cd tools/lint && $(GO) build -o ../../bin/ tool
	@rm -f bin/.lint-* && touch $@

include proof.mk

# Compiles what the tests and `make lint` will need.
.PHONY: ahead
ahead: $(LINT_TOOLS)
	$(call each,$(split) && status=0; \
		[ -z "$$raced" ] || $(GO) list $(RACE) -test -deps -export $$raced >/dev/null || status=1; \
		[ -z "$$unraced" ] || $(GO) list -test -deps -export $$unraced >/dev/null || status=1; \
		[ $$status = 0 ])

.PHONY: lint
lint: $(LINT_TOOLS) ## Check every module: gofmt, go vet, staticcheck, golangci-lint
	@./tools/lint.sh $(MODULES)

# Systems that everything must compile for, the tests too if there can be a redis-server.
.PHONY: cross
cross: ## Build everything for Windows, and everything with its tests for macOS and FreeBSD
	$(call each,GOOS=windows CGO_ENABLED=0 $(GO) build ./...)
	$(call each,GOOS=darwin CGO_ENABLED=0 $(GO) vet ./...)
	$(call each,GOOS=freebsd CGO_ENABLED=0 $(GO) vet ./...)

.PHONY: api
api: ## Compare the public API with that of the last tag
	@./tools/api.sh

# The version of a release, such as 0.2.0; CONTRIBUTING.md has the steps.
VERSION ?=

.PHONY: release-check release-prepare release-strip release-tags
release-check: ## Check what importers would get of VERSION; without one, of the next
	@cd tools/release && $(GO) run . check $(VERSION)
release-prepare: ## Write VERSION into go.mod files, the changelog and the chart, and list its API
	@cd tools/release && $(GO) run . prepare $(VERSION)
release-strip: ## Leave the replaces out, for the commit that is tagged
	@cd tools/release && $(GO) run . strip $(VERSION)
release-tags: ## List the tags of VERSION
	@cd tools/release && $(GO) run . tags $(VERSION)

# Not among the lint tools: its database has to be fetched.
.PHONY: vulncheck
vulncheck: ## Look for known vulnerabilities that the code of any module reaches
	$(call each,$(GO) run golang.org/x/vuln/cmd/govulncheck@latest ./...)

.PHONY: ci
ci: ## Run what CI runs: lint, test, bugs, and a slice of sim, virtual and the demo
	@./tools/ci.sh

.PHONY: fmt
fmt: $(LINT_TOOLS) ## Format the code and order its imports
	@bin/golangci-lint fmt

.PHONY: tidy
tidy: ## Tidy every go.mod, also that of the lint tools
	$(call each,$(GO) mod tidy)
	@cd tools/lint && $(GO) mod tidy

# In CI and as root it installs what is missing, else it says what is.
.PHONY: setup
setup:
	@./tools/setup.sh

.PHONY: install-redis
install-redis: ## Install redis-server if it is missing, and libfaketime, iproute2 and Chromium if there are packages
	@./tools/install-redis.sh
	@./tools/install-optional.sh

.PHONY: clean
clean: ## Remove what the other targets have left
	rm -rf bin coverage.out
	find . \( -name '*.test' -o -name '*.prof' \) -type f -not -path './.git/*' -delete
