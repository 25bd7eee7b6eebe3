// Package redisstore is the store of package store on Redis: go-redis and the scripts of
// scripts.lua. It is the only code that knows Redis.
//
// The scripts lie in the root of the module, which embeds them and hands their text to Load.
package redisstore
