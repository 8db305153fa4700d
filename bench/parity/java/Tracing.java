import java.util.concurrent.atomic.AtomicLong;

import io.opentelemetry.api.trace.propagation.W3CTraceContextPropagator;
import io.opentelemetry.context.propagation.ContextPropagators;
import io.opentelemetry.sdk.OpenTelemetrySdk;
import io.opentelemetry.sdk.trace.IdGenerator;
import io.opentelemetry.sdk.trace.SdkTracerProvider;

/**
 * OpenTelemetry with W3C headers, as its Java agent would set it up. Without it
 * the router's tracing does nothing. Span ids are counted instead of drawn, so
 * that answers can be compared.
 */
final class Tracing {
    private Tracing() {
    }

    static void install() {
        AtomicLong last = new AtomicLong();
        OpenTelemetrySdk.builder()
                .setTracerProvider(SdkTracerProvider.builder().setIdGenerator(new IdGenerator() {
                    @Override
                    public String generateSpanId() {
                        return String.format("%016x", last.incrementAndGet());
                    }

                    @Override
                    public String generateTraceId() {
                        return String.format("%032x", last.incrementAndGet());
                    }
                }).build())
                .setPropagators(ContextPropagators.create(W3CTraceContextPropagator.getInstance()))
                .buildAndRegisterGlobal();
    }
}
