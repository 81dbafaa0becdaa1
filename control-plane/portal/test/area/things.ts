/** Makes one of each thing of an account that an address can name. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { imageBody, pngHeader } from '@matting/core/test/support/test-app.ts';
import { createSecret } from '../../session/secret.ts';
import { paid } from '../orders.ts';
import { actorOf, newLink, OPERATOR, personOfAccount } from '../people.ts';
import type { PortalApp } from '../portal-app.ts';
import { multipartOf, type Person } from './person.ts';
import type { AccountWorld, Member } from './world.ts';

/** Each returns the id. */
const MAKERS = {
  accountId: async ({ accountId }: Of) => accountId,
  keyId: async ({ test, accountId }: Of) =>
    (await test.stores.apiKeys.create(accountId, 'a key')).key.id,
  jobId: async ({ test, accountId }: Of) => {
    const { token } = await test.stores.apiKeys.create(accountId, 'a key of a job');
    const jobId = await submitJob(test, token, { correctable: true });
    await succeedWithPicture(test, jobId);
    return jobId;
  },
  userId: async ({ test, accountId }: Of) =>
    (await personOfAccount(test.stores, accountId, 'viewer')).userId,
  formerUserId: async ({ test, accountId }: Of) => {
    const former = await personOfAccount(test.stores, accountId, 'member');
    const { userId } = former;
    const by = { actor: actorOf(former, 'keys.manage'), aliveMax: 100, everMax: 100 };
    assert.notEqual(await test.stores.apiKeys.createBy(accountId, 'left behind', by), 'too-many');
    await test.stores.people.removeMember(accountId, userId, {
      actor: OPERATOR,
      entryId: randomUUID(),
    });
    return userId;
  },
  sessionId: async ({ sessionId }: Of) => sessionId,
  /** Paid, since only a few orders may be pending. */
  orderId: async ({ test, accountId }: Of) => (await paid(test.stores, accountId)).id,
  playgroundJobId: async ({ test, owner }: Of) => {
    const fields = { csrf: await owner.token(), once: createSecret() };
    const sent = { csrf: null, ...multipartOf(fields, pngHeader(4, 3)) };
    const answer = await owner.post('/account/playground', {}, sent);
    const jobId = /playground\/([0-9a-f-]{36})/.exec(String(answer.headers.location))?.[1];
    assert.ok(jobId, answer.body);
    await test.succeedJob(jobId, PICTURE);
    return jobId;
  },
  invitationId: async ({ test, accountId }: Of) => {
    const link = newLink(accountId);
    assert.equal(await test.stores.links.create(link, OPERATOR), 'created');
    return link.id;
  },
} as const;

interface Of {
  readonly test: PortalApp;
  readonly accountId: string;
  readonly owner: Person;
  readonly sessionId: string;
}

export type ThingName = keyof typeof MAKERS;
export type Things = Readonly<Record<ThingName, string>>;
export const THING_NAMES = Object.keys(MAKERS) as ThingName[];

export function makeThing(
  test: PortalApp,
  name: ThingName,
  { accountId, people }: AccountWorld,
  { sessionId }: Pick<Member, 'sessionId'>,
): Promise<string> {
  return MAKERS[name]({ test, accountId, owner: people.owner, sessionId });
}

export async function makeThings(test: PortalApp, of: AccountWorld): Promise<Things> {
  const made: [ThingName, string][] = [];
  for (const name of THING_NAMES) {
    made.push([name, await makeThing(test, name, of, of.people.member)]);
  }
  return Object.fromEntries(made) as Things;
}

export async function submitJob(
  test: PortalApp,
  token: string,
  more: Readonly<Record<string, unknown>> = {},
): Promise<string> {
  const authorization = `Bearer ${token}`;
  const answer = await test.post('/v1/matting/jobs', imageBody(more), { authorization });
  assert.equal(answer.statusCode, 202, answer.body);
  return answer.json().job_id;
}

const PICTURE = readFileSync(new URL('../../assets/demo-cutout.webp', import.meta.url));
const TIMINGS = { queue: 31, receive: 12, worker_wait: 4, decode: 48, engine_wait: 0 };
const WORKED = { infer: 262, second_look: 0, refine: 91, encode: 74, send: 6, store: 9 };

/** The demo's cut-out is the job's result and thumbnail. */
async function succeedWithPicture(test: PortalApp, jobId: string): Promise<void> {
  test.thumbnail = PICTURE;
  await test.succeedJob(jobId, PICTURE, { ...TIMINGS, ...WORKED });
  test.thumbnail = undefined;
}

const BOX = { left: 0, top: 0, width: 900, height: 675 };
const SUBJECT = { inputBox: BOX, resultBox: BOX, share: 0.5, unsure: true, cutOff: true };

const DAY_NAMES = [
  'Web shop',
  'Print catalogue',
  '目录自动化',
  'A name of sixty letters: '.padEnd(60, 'x'),
];

export async function fillAccount(test: PortalApp, { accountId }: AccountWorld): Promise<void> {
  for (const name of DAY_NAMES) {
    const { token } = await test.stores.apiKeys.create(accountId, name);
    for (let jobs = 0; jobs < 3; jobs += 1) {
      await succeedWithPicture(test, await submitJob(test, token));
    }
    test.sight = { inputWidth: 900, inputHeight: 675, subject: SUBJECT };
    const reference = `SKU 4711 of ${name}, seen from the left, on the shelf of the shop`;
    await succeedWithPicture(test, await submitJob(test, token, { correctable: true, reference }));
    test.sight = null;
    await test.failJob(await submitJob(test, token), {
      code: 'UNSUPPORTED_IMAGE_FORMAT',
      detail: 'the file is no picture',
      retryable: false,
    });
    await submitJob(test, token, {
      callback_url: 'https://receiver.example.com/notifications',
      callback_secret: `whsec_${Buffer.alloc(32, 7).toString('base64')}`,
    });
  }
  await test.stores.ledger.grant(accountId, 250, `a gift of the operator ${randomUUID()}`);
}
