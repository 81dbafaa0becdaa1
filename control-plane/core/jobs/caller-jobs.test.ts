import { randomUUID } from 'node:crypto';
import ava from 'ava';
import {
  fundedCaller,
  HOUR_MS,
  IMAGE_FAULT,
  newJob,
  onStores,
  running,
  submitted,
  successOf,
} from '../test/fixtures.ts';
import { LISTED_STATES } from './caller-jobs.ts';

const test = ava.serial;

onStores(test, "a caller's jobs", (test, { database, stores }) => {
  type Filter = Omit<Parameters<typeof stores.jobs.listOfKey>[0], 'limit' | 'after'>;

  async function pagesOf(filter: Filter, limit: number): Promise<string[][]> {
    const pages: string[][] = [];
    let after: string | undefined;
    do {
      const { jobs, next } = await stores.jobs.listOfKey({ ...filter, limit, after });
      pages.push(jobs.map(({ id }) => id));
      after = next ?? undefined;
    } while (after !== undefined);
    return pages;
  }

  async function crowd(count: number) {
    const { accountId, apiKeyId } = await fundedCaller(stores, 1000);
    const ids: string[] = [];
    for (let index = 0; index < count; index += 1) {
      const [reference, resultTtlMs] = index % 2 === 0 ? ['even', HOUR_MS] : [undefined, 0];
      const job = newJob(accountId, { apiKeyId, reference });
      ids.push(job.id);
      if (index % 3 === 0) {
        await submitted(stores, job);
      } else {
        const { claim } = await running(stores, job);
        if (index % 3 === 1) await stores.queue.fail(claim, IMAGE_FAULT);
        else await stores.queue.succeed(claim, successOf(claim, { resultTtlMs }));
      }
      await submitted(stores, newJob(accountId, { apiKeyId: 'key000000002', reference }));
    }
    return { apiKeyId, ids };
  }

  test('are the key’s own, the newest first, on pages that leave none out and repeat none', async t => {
    const { apiKeyId, ids } = await crowd(13);
    // The same instant, so that the id decides.
    await database.kysely
      .updateTable('jobs')
      .set({ created_at: 5 })
      .where('id', 'in', ids.slice(3, 9))
      .execute();
    const whole = await pagesOf({ apiKeyId }, 100);
    t.is(whole.length, 1);
    t.deepEqual([...whole[0]!].sort(), [...ids].sort());
    for (const limit of [1, 2, 5, 13]) {
      const pages = await pagesOf({ apiKeyId }, limit);
      t.deepEqual(pages.flat(), whole[0]);
      t.true(pages.every(page => page.length <= limit && page.length > 0));
    }
    t.deepEqual(whole[0]!.slice(7), ids.slice(3, 9).sort().reverse());
  });

  test('are those of one state, and of one reference', async t => {
    const { apiKeyId, ids } = await crowd(13);
    const whole = (await pagesOf({ apiKeyId }, 100)).flat();
    const of = async (filter: Partial<Filter>) =>
      (await pagesOf({ apiKeyId, ...filter }, 2)).flat();
    const parts = await Promise.all(LISTED_STATES.map(status => of({ status })));
    const [queued, processing, succeeded, failed, expired] = parts.map(part => part.length);
    t.deepEqual([queued, processing, succeeded, failed, expired], [5, 0, 2, 4, 2]);
    const isPart = (part: string[]) => part.join() === whole.filter(id => part.includes(id)).join();
    t.true(parts.every(isPart));
    const even = whole.filter(id => ids.indexOf(id) % 2 === 0);
    t.deepEqual(await of({ reference: 'even' }), even);
    const both = await of({ reference: 'even', status: 'failed' });
    t.deepEqual(
      both,
      even.filter(id => parts[3]!.includes(id)),
    );
    t.deepEqual(await of({ reference: 'even ' }), []);
    t.deepEqual(await of({ reference: 'Even' }), []);
    t.deepEqual(await pagesOf({ apiKeyId: 'key000000009' }, 5), [[]]);
  });

  test('come after many that a filter leaves out, by pages that are short', async t => {
    const { accountId, apiKeyId } = await fundedCaller(stores, 1);
    const { id } = await submitted(stores, newJob(accountId, { apiKeyId, reference: 'one' }));
    const row = await database.kysely
      .selectFrom('jobs')
      .selectAll()
      .where('id', '=', id)
      .executeTakeFirstOrThrow();
    const others = Array.from({ length: 1100 }, () => {
      const ended = {
        state: 'failed' as const,
        queue_at: null,
        finished_at: row.created_at + 1,
        source_url: null,
      };
      const failed = { input_blob: null, failure_code: 'PROCESSING_FAILED' as const };
      return {
        ...row,
        ...ended,
        ...failed,
        id: randomUUID(),
        created_at: row.created_at + 1,
        idempotency_key_hash: null,
      };
    });
    for (let from = 0; from < others.length; from += 100) {
      await database.kysely
        .insertInto('jobs')
        .values(others.slice(from, from + 100))
        .execute();
    }
    const pages = await pagesOf({ apiKeyId, reference: 'one', status: 'queued' }, 10);
    t.deepEqual([pages.length, pages.flat()], [3, [id]]);
    t.deepEqual(await pagesOf({ apiKeyId, status: 'queued' }, 10), [[id]]);
  });
});
