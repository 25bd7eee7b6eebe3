// Package store is what tenure asks of a store and what it answers: calls and replies, keys and
// names, hints, the record of an instance, and the classes of errors. Package redisstore is that
// store, memstore the same one without Redis.
//
// Nothing in here decides anything or talks to anybody. What a reply holds is untrusted: other
// programs write to the same Redis, and anybody who may publish can send hints.
package store
