package main

// hearing breaks the subscription to hints, the roll-call, and what a hostile publisher or server may send.
var hearing = []bug{}
