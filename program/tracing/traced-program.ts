import type { Logger } from 'pino';
import type { SpanObserver } from './span.ts';

export interface TracedProgram {
  /** As service.name, unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES says another. */
  readonly name: string;
  readonly version: string;
  /** Which of several: service.instance.id. */
  readonly instanceId: string;
  readonly log: Pick<Logger, 'info' | 'warn'>;
  readonly observer: SpanObserver;
}
