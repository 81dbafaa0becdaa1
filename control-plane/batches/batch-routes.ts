import { callerOf, type HeaderChecks } from '@matting/core/http/header-checks.ts';
import type { CoreServices } from '@matting/core/package.ts';
import { HEAVY, MIDDLING } from '@matting/http/answer-shares.ts';
import { queryOf, requireLimit } from '@matting/http/body-fields.ts';
import { idempotencyKeyOf } from '@matting/http/request-headers.ts';
import { wantBody } from '@matting/http/unread-bodies.ts';
import { yieldToEventLoop } from '@matting/program/event-loop.ts';
import type { HeldRoom } from '@matting/program/held-bytes.ts';
import { ContractError, invalidParameter } from '@matting/proto/contract/errors.ts';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import {
  BATCH_ITEMS_MAX,
  BATCH_STATUSES,
  type Batch,
  isBatchCursor,
  type ManyJobs,
} from './batch.ts';
import type { BatchStores } from './batch-stores.ts';
import type { SubmittedBatch } from './batch-submission.ts';
import type { BatchViews } from './batch-views.ts';
import { readAgainBody, readBatchBody, requireBatchBody } from './read-batch-body.ts';
import { submitAgain } from './submit-again.ts';
import { type Submitter, submitBatch } from './submit-batch.ts';

const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const PATH = '/v1/matting/batches';
const POLL_AFTER_S = 5;
const RESULTS_DEFAULT = 100;
/** Lines between two breaks for the event loop: a few milliseconds. */
const RESULTS_A_TURN = 50;
const LISTED_MAX = 100;
const LISTED_DEFAULT = 20;

type OfBatch = FastifyRequest<{ Params: { batchId: string } }>;

interface BatchRouteParts {
  readonly batches: BatchStores;
  readonly views: BatchViews;
  readonly manyJobs: ManyJobs;
  readonly uploads: CoreServices['uploads'];
  readonly onSubmitted: () => void;
}

export function registerBatchRoutes(
  app: FastifyInstance,
  { batches, views, uploads, ...submitting }: BatchRouteParts,
  checks: HeaderChecks,
): void {
  const find = async (request: OfBatch): Promise<Batch> => {
    const id = request.params.batchId.toLowerCase();
    const { apiKeyId } = callerOf(request);
    return required(UUID.test(id) ? await batches.findForKey(id, apiKeyId) : undefined);
  };
  const answer = (reply: FastifyReply, batch: Batch) => {
    if (batch.finishedAtMs === null) reply.header('retry-after', POLL_AFTER_S);
    return reply.send(views.batch(batch));
  };
  const parts = { batches, ...submitting };
  const checked = { onRequest: checks.submissionOf(requireBatchBody) };
  const submit = async (
    request: FastifyRequest,
    reply: FastifyReply,
    read: (room: HeldRoom, submitter: Omit<Submitter, 'caller'>) => Promise<SubmittedBatch>,
  ) => {
    const idempotencyKey = idempotencyKeyOf(request);
    wantBody(request, reply);
    const room = uploads.beginTexts(callerOf(request).accountId);
    const recheckCaller = () => checks.recheckCaller(request);
    const submitted = read(room, { recheckCaller, idempotencyKey });
    const { batch, created } = await submitted.finally(() => room.end());
    const isOver = batch.finishedAtMs !== null;
    if (!created && isOver) reply.header('idempotent-replayed', 'true');
    if (!isOver) reply.header('location', views.batch(batch).status_url);
    return answer(reply.code(isOver ? 200 : 202), batch);
  };
  app.post(PATH, checked, (request, reply) =>
    submit(request, reply, async (room, submitter) => {
      const fields = await readBatchBody(request.raw, room);
      const caller = await submitter.recheckCaller();
      return submitBatch(parts, { ...submitter, caller, fields });
    }),
  );
  app.post(`${PATH}/:batchId/again`, checked, (request: OfBatch, reply) =>
    submit(request, reply, async (room, submitter) => {
      const texts = await readAgainBody(request.raw, room);
      const caller = await submitter.recheckCaller();
      const id = request.params.batchId.toLowerCase();
      const again = { id, texts, find: () => find(request) };
      return submitAgain(parts, { ...submitter, caller }, again);
    }),
  );
  registerReads(app, { batches, views, find, answer }, checks);
}

function registerReads(
  app: FastifyInstance,
  {
    batches,
    views,
    find,
    answer,
  }: Pick<BatchRouteParts, 'batches' | 'views'> & {
    readonly find: (request: OfBatch) => Promise<Batch>;
    readonly answer: (reply: FastifyReply, batch: Batch) => FastifyReply;
  },
  checks: HeaderChecks,
): void {
  app.get(PATH, { onRequest: checks.read, config: { weight: HEAVY } }, async request => {
    const { apiKeyId } = callerOf(request);
    const filter = readFilter(request.raw.url ?? '');
    const { batches: found, next } = await batches.listOfKey({ apiKeyId, ...filter });
    return { batches: found.map(views.batch), next_cursor: next };
  });
  const config = { weight: MIDDLING };
  const read = { onRequest: checks.read, config };
  app.get(`${PATH}/:batchId`, read, async (request: OfBatch, reply) =>
    answer(reply, await find(request)),
  );
  app.delete(
    `${PATH}/:batchId`,
    { onRequest: checks.deletion, config },
    async (request: OfBatch, reply) => {
      const { id, apiKeyId } = await find(request);
      return answer(reply, required(await batches.cancelBatch(id, apiKeyId)));
    },
  );
  app.get(
    `${PATH}/:batchId/results`,
    { onRequest: checks.read, config: { weight: weightOfPage } },
    async (request: OfBatch, reply) => {
      const { from, limit } = readPage(request.raw.url ?? '');
      const batch = await find(request);
      const lines: string[] = [];
      const end = Math.min(batch.items, from + limit);
      for (let at = from; at < end; at += RESULTS_A_TURN) {
        if (at > from) await yieldToEventLoop();
        const items = await batches.items(batch, at, Math.min(RESULTS_A_TURN, end - at));
        lines.push(...items.map(item => `${JSON.stringify(views.item(batch, item))}\n`));
      }
      if (end < batch.items) {
        const next = `${views.batch(batch).status_url}/results?limit=${limit}&cursor=${end}`;
        reply.header('link', `<${next}>; rel="next"`);
      }
      return reply.type('application/jsonl').send(lines.join(''));
    },
  );
}

function required(batch: Batch | undefined): Batch {
  if (batch !== undefined) return batch;
  throw new ContractError(
    'BATCH_NOT_FOUND',
    'This API key has no batch with this id. Use the status_url and the key of the submission.',
  );
}

function readFilter(target: string) {
  const given = queryOf(target, ['status', 'limit', 'cursor']);
  const [text, limit, after] = ['status', 'limit', 'cursor'].map(name => given.get(name));
  const status = BATCH_STATUSES.find(known => known === text);
  if (text !== undefined && status === undefined) {
    throw invalidParameter('status', `must be one of ${BATCH_STATUSES.join(', ')}`);
  }
  if (after !== undefined && !isBatchCursor(after)) {
    throw invalidParameter('cursor', 'must be the next_cursor of the page before');
  }
  return { status, after, limit: requireLimit(limit, LISTED_MAX) ?? LISTED_DEFAULT };
}

function weightOfPage(request: FastifyRequest): number {
  return Math.ceil((readPage(request.raw.url ?? '').limit / BATCH_ITEMS_MAX) * HEAVY);
}

function readPage(target: string): { readonly from: number; readonly limit: number } {
  const given = queryOf(target, ['limit', 'cursor']);
  const cursor = given.get('cursor') ?? '0';
  if (!/^\d{1,4}$/.test(cursor)) {
    throw invalidParameter('cursor', 'must be that of the link to the next page');
  }
  const limit = requireLimit(given.get('limit'), BATCH_ITEMS_MAX) ?? RESULTS_DEFAULT;
  return { from: Number(cursor), limit };
}
