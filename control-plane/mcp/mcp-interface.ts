/**
 * POST /mcp: the Streamable HTTP of the Model Context Protocol, without sessions. A request holds
 * one message, and its answer is JSON. GET and DELETE are for sessions, so they are 405.
 */

import {
  apiKeyOf,
  callerOf,
  holdSlot,
  requireApiKey,
  requireRate,
} from '@matting/core/http/header-checks.ts';
import type { HttpContext, HttpInterface } from '@matting/core/http/public-app.ts';
import type { CoreServices } from '@matting/core/package.ts';
import { HEAVY, LIGHT } from '@matting/http/answer-shares.ts';
import { requireBodyHead } from '@matting/http/bodies.ts';
import { malformed } from '@matting/http/body-fields.ts';
import { bodyTypeOf, headerValues } from '@matting/http/request-headers.ts';
import { wantBody } from '@matting/http/unread-bodies.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { REQUEST_BODY_BYTES_MAX } from '@matting/proto/contract/limits.ts';
import type {
  FastifyReply,
  FastifyRequest,
  onRequestAsyncHookHandler,
  onRequestHookHandler,
} from 'fastify';
import { CallTools, type ToolOptions } from './call-tools.ts';
import type { Described } from './mcp-server.ts';
import { readMessage, SMALL_MESSAGE_BYTES_MAX } from './read-message.ts';
import { registerUploadRoute } from './upload-route.ts';
import type { UploadStore } from './upload-store.ts';

interface McpOptions extends ToolOptions {
  readonly version: string;
}

export function mcpInterface(
  services: CoreServices,
  uploads: UploadStore,
  options: McpOptions,
): HttpInterface {
  const submitKey = requireApiKey(services, 'submit', apiKeyOf);
  const submissions = requireRate(services.rateLimits, 'submissions');
  const rates: Rates = {
    reads: requireRate(services.rateLimits, 'reads'),
    async submissions(request, reply) {
      await submitKey(request);
      await submissions.call(this, request, reply);
    },
  };
  return {
    register(app, context) {
      const { connections, document, answers } = context;
      const onRequest = [
        requireOwnOrigin(options.baseUrl),
        requireApiKey(services, undefined, apiKeyOf),
        requireMessageRate(rates),
        requireJson,
        holdSlot(connections),
      ];
      const described = { ...options, document };
      const tools = new CallTools(services, uploads, options);
      app.post('/mcp', { onRequest }, (request, reply) =>
        answer(request, reply, { services, tools, described, rates, answers }),
      );
      registerUploadRoute(app, services, uploads, context);
    },
  };
}

/**
 * Protects against DNS rebinding: a foreign page whose name resolves to this server could use a key
 * that is kept for it. Agents send no Origin. @throws ContractError KEY_NOT_ALLOWED
 */
function requireOwnOrigin(baseUrl: string): onRequestHookHandler {
  const own = new URL(baseUrl).origin;
  return (request, _reply, done) => {
    if (headerValues(request.raw, 'origin').some(origin => origin !== own)) {
      throw new ContractError('KEY_NOT_ALLOWED', 'Pages of other origins cannot call this.');
    }
    done();
  };
}

type Rates = Readonly<Record<'reads' | 'submissions', onRequestAsyncHookHandler>>;

/** A large message may hold a picture, whichever tool it calls. */
function isLargeMessage({ headers }: FastifyRequest): boolean {
  return Number(headers['content-length'] ?? 0) > SMALL_MESSAGE_BYTES_MAX;
}

/**
 * A large message counts as a submission. Without a Content-Length it counts as large once more
 * than SMALL_MESSAGE_BYTES_MAX came.
 * @throws ContractError KEY_NOT_ALLOWED, RATE_LIMITED
 */
function requireMessageRate({ reads, submissions }: Rates): onRequestAsyncHookHandler {
  return async function (request, reply) {
    await (isLargeMessage(request) ? submissions : reads).call(this, request, reply);
  };
}

const requireJson = requireBodyHead({
  accepted: 'application/json',
  wanted: 'application/json in UTF-8',
  bytesMaxOf: request => {
    const type = bodyTypeOf(request);
    const isJson = type !== 'none' && type?.type === 'application/json';
    return isJson ? REQUEST_BODY_BYTES_MAX : undefined;
  },
});

const WEIGHTS: ReadonlyMap<unknown, number> = new Map([['resources/read', HEAVY]]);

interface Parts {
  readonly answers: HttpContext['answers'];
  readonly services: CoreServices;
  readonly tools: CallTools;
  readonly described: Described;
  readonly rates: Rates;
}

async function answer(
  request: FastifyRequest,
  reply: FastifyReply,
  { services, tools, described, rates, answers }: Parts,
): Promise<FastifyReply> {
  const uploads = services.uploads.beginBoth(callerOf(request).accountId, request.raw);
  const isLarge = isLargeMessage(request);
  let isAdmitted = isLarge;
  let leave = (): void => undefined;
  const admit = async () => {
    leave();
    if (isAdmitted) return;
    isAdmitted = true;
    await rates.submissions.call(request.server, request, reply);
  };
  try {
    wantBody(request, reply);
    const reading = { isLarge, admitLarge: admit };
    const { message, longTexts } = await readMessage(request.raw, uploads, reading);
    if (Array.isArray(message))
      throw malformed('The body is a batch. Send one message per request.');
    // Importing the SDK takes a fifth of the start-up time, so the first message imports it.
    const { answerMessage } = await import('./mcp-server.ts');
    const { image } = uploads;
    const { method } = (message ?? {}) as { readonly method?: unknown };
    const release = await answers.enter(reply, WEIGHTS.get(method) ?? LIGHT);
    if (release === undefined) return reply.hijack();
    leave = release;
    const calling = { request, reply, image, longTexts, leave, admitSubmission: admit };
    const made = await answerMessage(message, calling, tools, described);
    return reply.code(made.status).headers(made.headers).send(Buffer.from(made.text));
  } finally {
    leave();
    await uploads.end();
  }
}
