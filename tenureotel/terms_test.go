package tenureotel

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
