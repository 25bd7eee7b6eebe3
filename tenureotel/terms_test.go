package tenureotel

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/tenure-go/tenure"
)

// TestTermWhoseEndWasMissed: events may be dropped. A span whose end was is ended by the next one.
func TestTermWhoseEndWasMissed(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	terms := terms{
		tracer: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("test"), on: make(map[string]trace.Span), stop: func() {},
	}
	now := time.Now()
	terms.event(tenure.Event{Type: tenure.EventTermBegan, Token: 1, Time: now})
	terms.event(tenure.Event{Type: tenure.EventTermBegan, Token: 2, Time: now.Add(time.Second), Dropped: 1})
	terms.close()
	require.Len(t, spans.Ended(), 2)
	require.Equal(t, time.Second, spans.Ended()[0].EndTime().Sub(spans.Ended()[0].StartTime()))
}

// TestSpansOfTerms: each says why its term ended, and has failed if nobody wanted that. Closing
// ends what is on, and nothing begins after it.
func TestSpansOfTerms(t *testing.T) {
	spans, stopped := tracetest.NewSpanRecorder(), 0
	terms := terms{
		tracer: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("test"), on: make(map[string]trace.Span), stop: func() { stopped++ },
	}
	now := time.Now()
	for reason, code := range map[string]codes.Code{
		"expired": codes.Error, "lost": codes.Error, "failed": codes.Error, "resigned": codes.Unset, "transferred": codes.Unset, "stopped": codes.Unset,
	} {
		terms.event(tenure.Event{Type: tenure.EventTermBegan, Role: "export", Token: 7, InstanceID: "a", Time: now})
		terms.event(tenure.Event{Type: tenure.EventTermEnded, Role: "other", Reason: reason, Time: now}) // its beginning was missed
		terms.event(tenure.Event{Type: tenure.EventTermEnded, Role: "export", Reason: reason, Err: errors.New("why"), Time: now.Add(time.Minute)})
		require.Empty(t, terms.on)
		span := spans.Ended()[len(spans.Ended())-1]
		require.Equal(t, code, span.Status().Code, reason)
		require.Equal(t, map[codes.Code]string{codes.Error: "why"}[code], span.Status().Description)
		require.Contains(t, span.Attributes(), attribute.String("tenure.reason", reason))
		require.Equal(t, time.Minute, span.EndTime().Sub(span.StartTime()))
	}
	terms.event(tenure.Event{Type: tenure.EventTermBegan, Role: "export", Time: now})
	terms.close()
	require.Equal(t, 1, stopped)
	terms.event(tenure.Event{Type: tenure.EventTermBegan, Role: "late", Time: now})
	require.Empty(t, terms.on)
	require.Len(t, spans.Started(), 7)
	require.Len(t, spans.Ended(), 7)
}
