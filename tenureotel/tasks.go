package tenureotel

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/store"
)

// carried begins the argument that carries the span of who triggers a task.
const carried = "traceparent:"

// Trigger is tasks.Trigger that also carries the span of ctx to the run, whose span links to it. It
// adds an argument behind the others, which Middleware takes off again: the instances that run the
// task must have it. Without a span in ctx, or with arguments that leave no room for it (about 70
// bytes), it adds none, and the run has no link. See TaskScheduler.Trigger for the errors.
func Trigger(ctx context.Context, tasks *tenure.TaskScheduler, name string, args ...string) (id string, err error) {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	if parent := carrier["traceparent"]; parent != "" {
		more := append(slices.Clone(args), carried+parent)
		if text, err := json.Marshal(more); err == nil && len(text) <= store.MaxTriggerArgs {
			args = more
		}
	}
	return tasks.Trigger(ctx, name, args...)
}

// Middleware returns a middleware for tenure.TaskOptions.Middleware: each attempt runs in a span of
// its own, a root that links to the span of who triggered the run. An error, and a panic, marks the
// span as failed. It may be shared.
func (o Options) Middleware() func(next tenure.TaskFunc) tenure.TaskFunc {
	return func(next tenure.TaskFunc) tenure.TaskFunc {
		return func(ctx context.Context, run tenure.TaskRun) (err error) {
			options := []trace.SpanStartOption{trace.WithNewRoot(), trace.WithAttributes(
				attribute.String("tenure.task", run.Task), attribute.String("tenure.run", run.ID), attribute.Int64("tenure.token", run.Token),
				attribute.Int("tenure.attempt", run.Attempt), attribute.String("tenure.slot", run.Slot.UTC().Format(time.RFC3339Nano)),
			)}
			if run.Trigger != "" {
				options = append(options, trace.WithAttributes(attribute.String("tenure.trigger", run.Trigger)))
			}
			if n := len(run.Args); n > 0 && strings.HasPrefix(run.Args[n-1], carried) {
				from := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": run.Args[n-1][len(carried):]})
				if link := trace.LinkFromContext(from); link.SpanContext.IsValid() {
					options = append(options, trace.WithLinks(link))
				}
				run.Args = run.Args[:n-1]
			}
			ctx, span := o.tracer().Start(ctx, "tenure.task "+run.Task, options...)
			returned := false
			defer func() {
				if !returned {
					span.SetStatus(codes.Error, "panic, or runtime.Goexit") // it goes on to who reports it
				}
				span.End()
			}()
			err = next(ctx, run)
			returned = true
			if err != nil {
				fail(span, err)
			}
			return err
		}
	}
}

// fail marks a span as failed. The methods of an error of the application may panic.
func fail(span trace.Span, err error) {
	text := "error"
	func() {
		defer func() { _ = recover() }()
		text = fmt.Sprint(err)
	}()
	span.SetStatus(codes.Error, text)
}
