/**
 * The loop that advances batches: every replica has one, and any of them makes the next transaction
 * (transactions/batch-progress.ts).
 */
import { pollingLoop } from '@matting/database/round-loop.ts';
import type { Logger } from 'pino';
import type { BatchStore } from '../jobs/batch.ts';
import type { JobEvents } from '../results/job-events.ts';
import type { BatchProgress } from '../transactions/batch-progress.ts';
import type { JobDeletion } from '../transactions/job-deletion.ts';

/** The time until room from a job's end, or what another replica left, is seen. */
const POLL_MS = 1000;

interface RunBatchesParts {
  readonly batches: Pick<BatchStore, 'listOpen' | 'queuedJobs'> & BatchProgress;
  readonly jobs: JobDeletion;
  readonly events: Pick<JobEvents, 'jobFinal' | 'notificationDue'>;
  readonly log: Pick<Logger, 'warn'>;
  readonly jobsInFlightMax: number;
  readonly pollMs?: number;
}

type OpenBatch = Awaited<ReturnType<BatchStore['listOpen']>>[number];

export function runBatches(parts: RunBatchesParts) {
  const { batches, log, pollMs = POLL_MS } = parts;
  return pollingLoop(
    pollMs,
    async () => {
      const full = new Set<string>();
      let page: OpenBatch[] = [];
      do {
        page = await batches.listOpen(page.at(-1));
        // A batch that fails holds up no other one.
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
 * Enters items while there is room, cancels what a caller cancelled, and ends what has ended.
 * @param full accounts without room in this round; their other batches do not ask again
 */
async function advance(parts: RunBatchesParts, batch: OpenBatch, full: Set<string>): Promise<void> {
  const { batches, jobs, events, jobsInFlightMax } = parts;
  let { waiting } = batch;
  const mayEnter = batch.cancelledAtMs !== null || !full.has(batch.accountId);
  while (mayEnter && waiting > 0) {
    const entered = await batches.enterItems(batch.id, batch.accountId, jobsInFlightMax);
    if (entered === 0) {
      full.add(batch.accountId);
      break;
    }
    waiting -= entered;
  }
  if (batch.cancelledAtMs !== null) {
    for (const id of await batches.queuedJobs(batch.id)) {
      await jobs.remove(id, batch.apiKeyId, { keepReference: true });
      events.jobFinal(id);
    }
  }
  if (waiting > 0) return;
  if (await batches.finishBatch(batch.id)) events.notificationDue();
}
