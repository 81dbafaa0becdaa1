/** The loop that advances batches. Every replica runs it (batch-progress.ts). */
import type { CoreServices } from '@matting/core/package.ts';
import { pollingLoop } from '@matting/database/round-loop.ts';
import type { Logger } from 'pino';
import type { BatchReading, JobGroups } from './batch.ts';
import type { BatchProgress } from './batch-progress.ts';

/** Longest delay until the loop sees that a job ended or that another replica stopped. */
const POLL_MS = 1000;

interface RunBatchesParts {
  readonly batches: Pick<BatchReading, 'listOpen'> &
    Pick<BatchProgress, 'enterItems' | 'finishBatch'>;
  readonly groups: Pick<JobGroups, 'cancel'>;
  readonly events: CoreServices['events'];
  readonly log: Pick<Logger, 'warn'>;
  readonly jobsInFlightMax: number;
  readonly pollMs?: number;
}

type OpenBatch = Awaited<ReturnType<BatchReading['listOpen']>>[number];

export function runBatches(parts: RunBatchesParts) {
  const { batches, log, pollMs = POLL_MS } = parts;
  return pollingLoop(
    pollMs,
    async () => {
      const full = new Set<string>();
      let page: OpenBatch[] = [];
      do {
        page = await batches.listOpen(page.at(-1));
        for (const batch of page) await advance(parts, batch, full).catch(noteFailure);
      } while (page.length > 0);
    },
    noteFailure,
  );

  function noteFailure(err: unknown) {
    log.warn({ err }, 'batches do not advance');
  }
}

/**
 * Enters items while there is room, cancels items of a cancelled batch, and finishes the batch.
 * @param full accounts without room in this round, shared by their batches
 */
async function advance(parts: RunBatchesParts, batch: OpenBatch, full: Set<string>): Promise<void> {
  const { batches, groups, events, jobsInFlightMax } = parts;
  const isCancelled = batch.cancelledAtMs !== null;
  let { waiting } = batch;
  while (waiting > 0 && (isCancelled || !full.has(batch.accountId))) {
    const entered = await batches.enterItems(batch.id, batch.accountId, jobsInFlightMax);
    if (entered === 0) {
      full.add(batch.accountId);
      break;
    }
    waiting -= entered;
  }
  if (isCancelled) for (const id of await groups.cancel(batch)) events.jobFinal(id);
  if (waiting > 0) return;
  if (await batches.finishBatch(batch.id)) events.notificationDue();
}
