// Package clientopts sets options of go-redis that some versions of it have. go.mod asks for an old
// one, so that nobody is made to upgrade; a newer one may do more unasked, which has to be switched
// off.
package clientopts

import "reflect"

// Set sets a field of a *redis.Options or *redis.ClusterOptions if this version of go-redis has it.
// A nil value clears the field.
func Set(opts any, field string, value any) {
	f := reflect.ValueOf(opts).Elem().FieldByName(field)
	switch {
	case !f.IsValid():
	case value == nil:
		f.SetZero()
	default:
		f.Set(reflect.ValueOf(value).Convert(f.Type()))
	}
}

// Maintenance sets the mode of maintenance notifications, "disabled" or "enabled", likewise.
func Maintenance(opts any, mode string) {
	f := reflect.ValueOf(opts).Elem().FieldByName("MaintNotificationsConfig")
	if !f.IsValid() {
		return
	}
	config := reflect.New(f.Type().Elem())
	config.Elem().FieldByName("Mode").SetString(mode)
	f.Set(config)
}
