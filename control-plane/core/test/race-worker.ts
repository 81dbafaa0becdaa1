/** A replica for the races: a task in and an answer out, a line of JSON each. */
import { createInterface } from 'node:readline';
import { openDatabase } from '@matting/database/connect.ts';
import { LEASE_MS } from '@matting/queue/lease-rules.ts';
import { at } from '@matting/test-support/at.ts';
import { SILENT_LOG } from '@matting/test-support/database.ts';
import type { NewJob } from '../queue/matting-submission.ts';
import { IMAGE_FAULT, LIMITS, storesOn, successOf } from './fixtures.ts';

export type RaceTask =
  /** All at once; answers each outcome's kind and job id. */
  | { readonly task: 'submit'; readonly jobs: readonly NewJob[] }
  /** Claims and ends this account's jobs until none is left; answers the ids. */
  | { readonly task: 'finish'; readonly accountId: string };

export type SubmitAnswer = { readonly kind: string; readonly id: string | null };

const database = await openDatabase(at(process.argv, 2), { log: SILENT_LOG });
const stores = storesOn(database);

function submit(jobs: readonly NewJob[]): Promise<SubmitAnswer[]> {
  return Promise.all(
    jobs.map(async job => {
      const outcome = await stores.queue.submit(job, LIMITS);
      return { kind: outcome.kind, id: 'job' in outcome ? outcome.job.id : null };
    }),
  );
}

async function finish(accountId: string): Promise<string[]> {
  const { queue } = stores;
  const finished: string[] = [];
  for (;;) {
    const open = (await queue.listClaimable(1000)).filter(job => job.accountId === accountId);
    if (open.length === 0) return finished;
    await Promise.all(
      open.map(async (listed, index) => {
        const won = await queue.claim(listed, `replica-${process.pid}`, LEASE_MS);
        if (won === undefined) return;
        await queue.admitted(won.claim);
        const ended = await (index % 3 === 0
          ? queue.fail(won.claim, IMAGE_FAULT)
          : queue.succeed(won.claim, successOf(won.claim)));
        if (ended) finished.push(listed.id);
      }),
    );
  }
}

function perform(task: RaceTask): Promise<unknown> {
  return task.task === 'submit' ? submit(task.jobs) : finish(task.accountId);
}

console.log(JSON.stringify('ready'));
for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await perform(JSON.parse(line) as RaceTask)));
}
await database.close();
