// Package deploy has the tests of the deployment kit.
package deploy
