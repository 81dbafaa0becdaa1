/** The one way to a tracer: without an endpoint there is none, and no SDK is loaded. */
import type { Tracing } from './span.ts';
import type { TracedProgram } from './traced-program.ts';
import type { TracingSettings } from './tracing-settings.ts';

/** Rejects with TracingFileError, which has one line for the operator. */
export async function openTracing(
  settings: TracingSettings | undefined,
  program: TracedProgram,
): Promise<Tracing | undefined> {
  if (settings === undefined) return undefined;
  const { OtelTracing } = await import('./otel/otel-tracing.ts');
  return await OtelTracing.open(settings, program);
}
