/** Loads OpenTelemetry only if there is an endpoint. */
import type { TracedProgram, Tracing } from './active-span.ts';
import type { TracingSettings } from './tracing-settings.ts';

/** @throws TracingFileError: one line for the operator */
export async function openTracing(
  settings: TracingSettings | undefined,
  program: TracedProgram,
): Promise<Tracing | undefined> {
  if (settings === undefined) return undefined;
  const { openOtelTracing } = await import('./otel-tracing.ts');
  return await openOtelTracing(settings, program);
}
