import assert from 'node:assert/strict';
import { randomBytes, randomUUID } from 'node:crypto';
import type { Database } from '@matting/database/database.ts';
import type { MigrationSeries } from '@matting/database/migrate.ts';
import { GuardedPost, type PostLimits } from '@matting/http/outgoing/guarded-post.ts';
import { OutgoingGuard } from '@matting/http/outgoing/outgoing-guard.ts';
import { createTestDatabase, type TestDatabase } from '@matting/test-support/database.ts';
import type { SerialFn } from 'ava';
import { JobEvents } from '../results/job-events.ts';
import { CallbackSecrets, notificationBody, SecretBox } from '../secrets/secret-box.ts';
import type { Stores } from '../stores.ts';
import type { MessageDelivery } from '../webhooks/deliver-messages.ts';
import { webhookDelivery } from '../webhooks/send-webhooks.ts';
import type { WebhookSchedule } from '../webhooks/webhook-schedule.ts';
import {
  bodyOf,
  fundedAccount,
  IMAGE_FAULT,
  newJob,
  reread,
  running,
  storesOn,
  successOf,
} from './fixtures.ts';
import { silent, until } from './harness.ts';

export const SECRET = `whsec_${randomBytes(32).toString('base64')}`;
/** Milliseconds. */
export const SCHEDULE: WebhookSchedule = [0, 10, 20, 30];
const TRUSTED = { fetchPorts: [80, 443], allowPrivateAddresses: true, allowHttpCallbacks: true };
/** Large, so that it never decides a test; only `replyMs` (the body after the status) is short. */
const LIMITS: Partial<PostLimits> = { totalMs: 15_000, replyMs: 100 };

export let testDatabase: TestDatabase;
export let database: Database;
export let stores: Stores;
let accountId: string;
export let secrets: CallbackSecrets;

/** One database for a file's tests, other secrets for each. */
export function useDeliveries(test: SerialFn, series?: readonly MigrationSeries[]): void {
  test.before(async () => {
    testDatabase = await createTestDatabase('sqlite', series && { series });
    database = await testDatabase.open();
    stores = storesOn(database, job => sealer().sealText(bodyOf(job), notificationBody(job.id)));
  });
  test.after.always(() => testDatabase.close());
  test.beforeEach(async () => {
    accountId = await fundedAccount(stores, 1000);
    // A new key, so that no test delivers another's messages.
    secrets = new CallbackSecrets(new SecretBox(randomBytes(32)));
  });
}

interface Replica extends AsyncDisposable {
  readonly delivery: MessageDelivery;
  readonly events: JobEvents;
  readonly observed: string[];
  readonly delaysMs: number[];
}

export function replica(
  options: {
    scheduleMs?: WebhookSchedule;
    policy?: Partial<typeof TRUSTED>;
    limits?: Partial<PostLimits>;
    secrets?: CallbackSecrets;
    outbox?: Stores['outbox'];
  } = {},
): Replica {
  const events = new JobEvents();
  const observed: string[] = [];
  const delaysMs: number[] = [];
  const policy = { ...TRUSTED, ...options.policy };
  const guard = new OutgoingGuard({ policy });
  const delivery = webhookDelivery({
    outbox: options.outbox ?? stores.outbox,
    guardedPost: new GuardedPost(guard, policy, { ...LIMITS, ...options.limits }),
    secrets: options.secrets ?? secrets,
    events,
    observer: {
      webhookAttempted: outcome => observed.push(outcome),
      webhookDelivered: delayMs => delaysMs.push(delayMs),
    },
    log: silent,
    holder: `replica-${randomUUID()}`,
    pollMs: 100,
    scheduleMs: options.scheduleMs ?? SCHEDULE,
  });
  delivery.start();
  return {
    delivery,
    events,
    observed,
    delaysMs,
    async [Symbol.asyncDispose]() {
      delivery.hurry();
      await delivery.stop(0);
    },
  };
}

let endings = 0;
/** The sealer of the replica that ends the job, whose key may differ. */
let sealer = () => secrets;

export async function ended(url: string, by = secrets): Promise<string> {
  endings += 1;
  sealer = () => by;
  const id = randomUUID();
  const callback = { url, ...by.seal(id, SECRET) };
  const { claim } = await running(stores, newJob(accountId, { id, callback }));
  if (endings % 2 === 0) assert.ok(await stores.queue.fail(claim, IMAGE_FAULT));
  else assert.ok(await stores.queue.succeed(claim, successOf(claim)));
  return id;
}

export async function rowOf(jobId: string) {
  return database.kysely
    .selectFrom('outbox')
    .selectAll()
    .where('id', '=', jobId)
    .executeTakeFirstOrThrow();
}

export const isFinal = (jobId: string) => async () => (await rowOf(jobId)).status !== 'pending';

export async function delivered({ events }: Replica, url: string): Promise<string> {
  const jobId = await ended(url);
  events.notificationDue();
  await until(isFinal(jobId));
  return jobId;
}

export async function told(jobId: string) {
  const { callback } = await reread(stores, jobId);
  const { status, attempts, lastStatusCode, lastFailure } = callback!;
  return [status, attempts, lastStatusCode, lastFailure];
}
