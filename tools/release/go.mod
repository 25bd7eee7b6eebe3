module github.com/tenure-go/tenure/tools/release

go 1.26.0

replace github.com/tenure-go/tenure => ../..

require (
	github.com/stretchr/testify v1.12.1
	github.com/tenure-go/tenure v0.0.0
	golang.org/x/mod v0.42.0
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect
