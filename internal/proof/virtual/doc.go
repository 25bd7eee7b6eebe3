// Package virtual runs the full stack in virtual time: coordinators with go-redis and the scripts
// in a real Lua, on a network and a Redis that fail (testing/synctest, internal/proof/simnet).
//
// A cluster is one such Redis with its instances: machines on which a process, a life, follows the
// other. Its checker is always on and holds what happens against the promises; its tap reads what
// Redis is told to write. A run plays a profile, which is a mix of faults: the nemesis draws them
// from the seed, and the last part of the run is calm, so that what should happen can be asked for.
// The directed tests play one fault each.
//
// A run needs a test to live in, since a bubble does. The command internal/proof/cmd/virtual
// therefore builds the tests of this package and has a process make each run: Request says which,
// Result and Figures what came of it, Catalog what there is to ask for, and Shrink makes a failing
// run smaller.
package virtual
