// Package helm has the tests of the chart tenure.
package helm
