module github.com/tenure-go/tenure/adapters/gocron

go 1.26.0

replace github.com/tenure-go/tenure => ../..

require (
	github.com/go-co-op/gocron/v2 v2.21.2
	github.com/stretchr/testify v1.12.1
	github.com/tenure-go/tenure v0.0.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/jonboulle/clockwork v0.5.0 // indirect
	github.com/redis/go-redis/v9 v9.23.0 // indirect
	github.com/robfig/cron/v3 v3.0.1 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.48.0 // indirect
)
