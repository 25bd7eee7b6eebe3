// Shop is a realistic service: an HTTP API of which one part is served by the leader only, two
// roles that the instances share out, an hourly and a frequent task, metrics, probes, and the
// status page with its commands. All that is about leading comes from the library.
//
//	SHOP_NAMESPACE=shop go run .
//	SHOP_NAMESPACE=shop SHOP_REDIS_URL=redis://127.0.0.1:6379 SHOP_INSTANCE_ID=a SHOP_ADDR=:8080 go run .
//
// Without Redis it runs alone. Beside the variables of tenure.OptionsFromEnv it reads SHOP_ADDR
// (:8080) and SHOP_ADMIN_TOKEN, without which nobody may send commands. It exits with 0 after
// SIGINT or SIGTERM, and with 1 if it cannot serve.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/tenure-go/tenure"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "shop:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	env, err := tenure.OptionsFromEnv("SHOP")
	if err != nil {
		return err
	}
	if env.Redis != nil {
		defer func() { _ = env.Redis.Close() }()
	}
	env.Options.Logger = slog.Default()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", cmp.Or(os.Getenv("SHOP_ADDR"), ":8080"))
	if err != nil {
		return err
	}
	advertise(&env, listener.Addr())
	shop, err := newShop(env, os.Getenv("SHOP_ADMIN_TOKEN"))
	if err != nil {
		_ = listener.Close()
		return err
	}
	return shop.serve(ctx, listener)
}

// advertise has the other instances forward orders to where this one listens, if the environment
// names no other address: by the name of this machine. In Compose that is the name of a container.
func advertise(env *tenure.EnvOptions, listens net.Addr) {
	tcp, is := listens.(*net.TCPAddr)
	if !is || env.Options.Registry.Address != "" {
		return
	}
	host := tcp.IP.String()
	if tcp.IP.IsUnspecified() {
		name, err := os.Hostname()
		if err != nil {
			return
		}
		host = name
	}
	env.Options.Registry.Address = "http://" + net.JoinHostPort(host, strconv.Itoa(tcp.Port))
}
