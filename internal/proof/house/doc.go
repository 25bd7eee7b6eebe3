// Package house has tests alone: they hold the root's files to their order, the public surface to
// its list, and the documents to what they show, name and count. They run in the root of the
// repository, and know no more of the library than its importers do.
package house
