// Package deploy has the tests of the deployment kit; those of the chart are in helm.
package deploy
