/** A replica's life by every method of the stores; only ids are random. Needs: batches. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { newBatch, type Stores } from '@matting/batches/test/fixtures.ts';
import type { Job } from '@matting/core/jobs/job.ts';
import { correctionOf, firstOf, succeedCorrection } from '@matting/core/test/families.ts';
import {
  claimed,
  fundedAccount,
  fundedCaller,
  HOUR_MS,
  IMAGE_FAULT,
  newJob,
  OPERATOR,
  resultOf,
  SERVICE_FAULT,
  storedInput,
  submitted,
  successOf,
} from '@matting/core/test/fixtures.ts';
import type { Claim } from '@matting/core/test/internals.ts';
import { type MessageClaim, RATE_WINDOW_MS } from '@matting/core/test/internals.ts';
import type { FinalJob, Legacy } from './snapshot.ts';

const OVER_MS = -1000;
const HOLDER = 'old-replica';
const SECRET_KEY_ID = 'key-1';
const CALLBACK = {
  url: 'https://receiver.example/hook',
  secret: new Uint8Array([1, 2, 3]),
  secretKeyId: SECRET_KEY_ID,
};
const END = { statusCode: 500, durationMs: 12 };

export async function liveOn(stores: Stores): Promise<Legacy> {
  const accountId = await fundedAccount(stores, 100);
  await stores.ledger.revoke(accountId, 5, 'mistake');
  const { key, token } = await stores.apiKeys.create(accountId, 'main');
  const other = await stores.apiKeys.create(accountId, 'second');
  await stores.apiKeys.revoke(other.key.id);
  await stores.apiKeys.authenticate(token);
  await stores.apiKeys.list(accountId);
  await stores.accounts.findByNameOrId(accountId);
  await useNodesAndQuotas(stores, accountId);
  const work = new Work(stores, accountId, key.id);
  const jobs = await work.leaveJobs();
  await work.lookAround(jobs);
  await work.lookOverResults(jobs.untold);
  await work.sweep();
  const families = await leaveFamilies(stores);
  const balances = await stores.ledger.balances(accountId);
  return {
    accountId,
    apiKeyId: key.id,
    token,
    idempotencyKeyHash: work.idempotencyKeyHash,
    resultToken: work.resultToken,
    jobs,
    available: balances?.available ?? 0,
    families,
  };
}

async function leaveFamilies(stores: Stores): Promise<Legacy['families']> {
  const { jobs, ledger, queue } = stores;
  const { accountId, apiKeyId } = await fundedCaller(stores, 20);
  const own = { apiKeyId, reference: 'mine' };
  const first = await firstOf(stores, accountId, own);
  await succeedCorrection(stores, await submitted(stores, correctionOf(first)));
  const corrected = await firstOf(stores, accountId, own);
  await submitted(stores, correctionOf(corrected));
  const deleted = await queue.remove(corrected.id, apiKeyId);
  for (const blob of deleted?.blobs ?? []) await jobs.resultErased(corrected.id, blob);
  const cancelled = await submitted(stores, newJob(accountId, own));
  await queue.remove(cancelled.id, apiKeyId);
  await jobs.deletedAmong([corrected.id, cancelled.id]);
  await jobs.listOfKey({ apiKeyId, limit: 2 });
  await jobs.search({ accountId, apiKeyIds: [apiKeyId], text: 'mine', limit: 5 });
  await jobs.openOf(accountId, 5);
  await jobs.noteLooked(accountId, first.id);
  await jobs.takeExpiredKept(10);
  const page = { fromMs: 0, beforeMs: undefined, kinds: undefined, after: undefined, limit: 9 };
  await ledger.lines(accountId, page);
  const openBatch = await leaveBatches(stores, { accountId, apiKeyId });
  assert.deepEqual(await ledger.check(accountId), []);
  return { accountId, apiKeyId, correctable: first.id, openBatch };
}

async function leaveBatches(
  stores: Stores,
  caller: { readonly accountId: string; readonly apiKeyId: string },
): Promise<string> {
  const { batches, groups, queue } = stores;
  const [open, cancelled] = [newBatch(caller, 2), newBatch(caller, 3)];
  for (const batch of [open, cancelled]) await batches.submitBatch(batch);
  await batches.listOpen();
  await batches.enterItems(open.id, caller.accountId, 1);
  await batches.enterItems(cancelled.id, caller.accountId, 2);
  const asked = { actor: OPERATOR, accountId: caller.accountId };
  await batches.cancelBatchBy(cancelled.id, asked);
  await batches.enterItems(cancelled.id, caller.accountId, 2);
  await groups.cancel(cancelled);
  assert.ok(await batches.finishBatch(cancelled.id));
  const [item] = open.items;
  assert.ok(item);
  await queue.remove(item.jobId, caller.apiKeyId);
  const found = await batches.findForKey(open.id, caller.apiKeyId);
  assert.equal(found?.counts.waiting, 1);
  await batches.jobs(found, { from: 0, limit: 10 });
  await batches.items(found, 0, 10);
  await batches.listOf(caller.accountId, 10);
  await batches.failedItems(found);
  return open.id;
}

async function useNodesAndQuotas(stores: Stores, accountId: string): Promise<void> {
  const bootId = randomUUID();
  const nodeId = `node-${bootId.slice(0, 8)}`;
  const node = { nodeId, bootId, address: 'n.example:1', httpAddress: '', version: 'old' };
  await stores.nodes.register(node, HOUR_MS);
  await stores.nodes.heartbeat(nodeId, bootId, HOUR_MS);
  await stores.nodes.setDraining(nodeId, true);
  await stores.nodes.setDraining(nodeId, false);
  await stores.nodes.noteModels(nodeId, bootId, []);
  await stores.nodes.listLive();
  const canary = { keyId: SECRET_KEY_ID, ciphertext: new Uint8Array([9]) };
  await stores.secretsCanary.establish(canary);
  const now = await stores.rateQuotas.nowMs();
  const windowStartMs = now - (now % RATE_WINDOW_MS);
  for (const advance of [10, 0]) {
    const ask = { limit: 600, block: 10, advance, windowStartMs };
    await stores.rateQuotas.lease(accountId, 'submissions', ask);
  }
}

class Work {
  readonly #stores: Stores;
  readonly #accountId: string;
  readonly #apiKeyId: string;
  idempotencyKeyHash = '';
  resultToken = '';

  constructor(stores: Stores, accountId: string, apiKeyId: string) {
    this.#stores = stores;
    this.#accountId = accountId;
    this.#apiKeyId = apiKeyId;
  }

  async leaveJobs(): Promise<Legacy['jobs']> {
    const { queue } = this.#stores;
    const { id: accepted } = await this.#submit('url');
    const fetching = (await this.#claim('url')).jobId;
    const ready = await this.#claim('url');
    await queue.inputStored(ready, storedInput(`${ready.jobId}-1`));
    const given = await this.#claim('bytes');
    await queue.renew(given, HOUR_MS);
    await queue.release(given);
    const running = await this.#claim('bytes');
    await queue.admitted(running);
    const lost = await this.#claim('bytes');
    await queue.admitted(lost);
    await queue.attemptLost(lost, true);
    const freed = await this.#claim('bytes');
    await queue.endLease(freed.jobId);
    return {
      accepted,
      fetching,
      ready: ready.jobId,
      given: given.jobId,
      running: running.jobId,
      lost: lost.jobId,
      freed: freed.jobId,
      ...(await this.#leaveFinalJobs()),
    };
  }

  async #leaveFinalJobs(): Promise<Record<FinalJob, string>> {
    const { queue, outbox } = this.#stores;
    const told = await this.#succeeded(HOUR_MS);
    await outbox.claim(told, HOUR_MS);
    await outbox.delivered(told, END);
    const untold = await this.#succeeded(HOUR_MS);
    const expired = await this.#succeeded(OVER_MS);
    const retried = await this.#claim('bytes');
    await queue.fail(retried, SERVICE_FAULT);
    const sending: MessageClaim = { id: retried.jobId, holder: HOLDER, fence: 1 };
    await outbox.claim(sending, HOUR_MS);
    await outbox.retryLater(sending, END, OVER_MS);
    const refused = await this.#claim('bytes');
    await queue.fail(refused, IMAGE_FAULT);
    const gone: MessageClaim = { id: refused.jobId, holder: HOLDER, fence: 1 };
    await outbox.claim(gone, HOUR_MS);
    await outbox.failed(gone, END, { eraseSecret: false });
    return {
      told: told.id,
      untold: untold.id,
      expired: expired.id,
      retried: retried.jobId,
      refused: refused.jobId,
    };
  }

  async lookAround(ids: Legacy['jobs']): Promise<void> {
    const { jobs, queue, ledger, outbox } = this.#stores;
    await jobs.find(ids.running);
    await jobs.findForKey(ids.told, this.#apiKeyId);
    await queue.findByKey(this.#apiKeyId, { hash: this.idempotencyKeyHash });
    await jobs.findByResultToken(this.resultToken);
    await jobs.findFinal([ids.told, ids.running]);
    await queue.listClaimable(100, await queue.listLanes());
    await jobs.list({ states: ['running', 'failed'], endedWithinMs: HOUR_MS, limit: 50 });
    await queue.queued();
    await queue.doneWithin(HOUR_MS);
    await outbox.due();
    await outbox.list({ jobId: ids.untold, limit: 5 });
    await outbox.countSealedWithOthers([SECRET_KEY_ID]);
    await ledger.balances(this.#accountId);
  }

  async lookOverResults(jobId: string): Promise<void> {
    const { lostResults } = this.#stores;
    const first = { atMs: 0, id: '' };
    await lostResults.live(first, 10);
    await lostResults.newest();
    await lostResults.corrections(jobId);
  }

  async sweep(): Promise<void> {
    const { jobs, outbox } = this.#stores;
    const names = await jobs.takeExpiredResultBlobs(100);
    await jobs.referencedBlobs([...names, 'inputs/nobody']);
    await jobs.removeFinalOlderThan(HOUR_MS, 100);
    await outbox.eraseDueSecrets(100);
  }

  async #submit(source: 'url' | 'bytes'): Promise<Job> {
    const job = newJob(this.#accountId, {
      apiKeyId: this.#apiKeyId,
      class: 'sync',
      sourceUrl: source === 'url' ? 'https://pictures.example/1.png' : null,
      callback: CALLBACK,
    });
    this.idempotencyKeyHash = job.idempotencyKeyHash;
    return submitted(this.#stores, job);
  }

  async #claim(source: 'url' | 'bytes'): Promise<Claim> {
    const job = await this.#submit(source);
    const claim = await claimed(this.#stores, job, { holder: HOLDER, leaseMs: HOUR_MS });
    await this.#stores.queue.renew(claim, OVER_MS);
    return claim;
  }

  async #succeeded(resultTtlMs: number): Promise<MessageClaim> {
    const claim = await this.#claim('bytes');
    await this.#stores.queue.admitted(claim);
    const result = resultOf(claim);
    if (resultTtlMs > 0) this.resultToken = result.sealedToken;
    const success = successOf(claim, { result, resultTtlMs, timings: { infer: 3 } });
    await this.#stores.queue.succeed(claim, success);
    return { id: claim.jobId, holder: HOLDER, fence: 1 };
  }
}
