/** The lines that a pool writes about its engines. */
import type { Logger } from 'pino';
import type { PreparedModel } from '../../models/prepared-model.ts';
import type { Engine, EngineLoss } from './engine.ts';
import type { EngineGroup } from './engine-group.ts';
import type { RunTask } from './run-task.ts';

export class PoolLog {
  readonly #log: Logger;
  readonly #of: Pick<PreparedModel, 'model' | 'provider'>;

  constructor(log: Logger, { model, provider }: PreparedModel) {
    this.#log = log;
    this.#of = { model, provider };
  }

  ready({ index, pid, loadMs }: Engine<RunTask>, group: EngineGroup, warmMs: number): void {
    const facts = { ...this.#of, ...gpuOf(group), loadMs, warmMs };
    this.#log.info({ engine: index, enginePid: pid, ...facts }, 'engine ready');
  }

  lost({ index }: Engine<RunTask>, { cause, message }: EngineLoss<RunTask>): void {
    this.#log.warn({ engine: index, cause, reason: message }, 'engine lost');
  }

  stuck({ index }: Engine<RunTask>, pid: number): void {
    this.#log.error({ engine: index, enginePid: pid }, 'engine was killed and does not die');
  }

  loading({ index }: Engine<RunTask>, loadingMs: number): void {
    const loadingS = Math.round(loadingMs / 1000);
    this.#log.info({ engine: index, ...this.#of, loadingS }, 'engine still loads');
  }

  output({ index, pid }: Engine<RunTask>, line: string): void {
    this.#log.warn({ engine: index, enginePid: pid, line }, 'engine wrote');
  }

  /** @param images of one run from now on, at most. */
  severalGivenUp(group: EngineGroup, images: number): void {
    const facts = { model: this.#of.model, ...gpuOf(group), images };
    this.#log.error(facts, 'runs of several images keep failing: fewer at once');
  }

  failed(reason: string): void {
    this.#log.error({ reason }, 'engines failed: no more images are taken');
  }
}

function gpuOf({ device }: EngineGroup): { gpu?: string } {
  return device === undefined ? {} : { gpu: device.facts.id };
}
