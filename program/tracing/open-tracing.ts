/** The one way to a tracer: without an endpoint there is none, and OpenTelemetry is not loaded. */
import type { TracedProgram, Tracing } from './active-span.ts';
import type { TracingSettings } from './tracing-settings.ts';

/** Rejects with TracingFileError, which has one line for the operator. */
export async function openTracing(
  settings: TracingSettings | undefined,
  program: TracedProgram,
): Promise<Tracing | undefined> {
  if (settings === undefined) return undefined;
  const { openOtelTracing } = await import('./otel-tracing.ts');
  return await openOtelTracing(settings, program);
}
