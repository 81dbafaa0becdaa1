/**
 * A request of another service's interface that waits for its picture. It is an ordinary job whose
 * idempotency key is derived from the request, since these clients send no key, time out and post
 * the same request again. The answer is the picture, or JSON with the picture in it.
 */
import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import {
  apiKeyOf,
  type Check,
  callerOf,
  callerRecheck,
  holdSlot,
  requireApiKey,
  requireRate,
} from '@matting/core/http/header-checks.ts';
import type { Job } from '@matting/core/jobs/job.ts';
import type { CoreServices } from '@matting/core/package.ts';
import { jobErrorOf, withJob } from '@matting/core/results/job-errors.ts';
import { serverTimingOf } from '@matting/core/results/job-headers.ts';
import { openForReader } from '@matting/core/results/result-download.ts';
import { waitForEnd } from '@matting/core/results/wait-for-job.ts';
import type { RequestUploads } from '@matting/core/submission/image-uploads.ts';
import type { MattingRequest } from '@matting/core/submission/matting-request.ts';
import type { KeylessSubmission, Submitted } from '@matting/core/submission/submit-matting.ts';
import { noteJob } from '@matting/http/answer-log.ts';
import type { Connections } from '@matting/http/connections.ts';
import { wantsJsonAlone } from '@matting/http/request-headers.ts';
import { wantBody } from '@matting/http/unread-bodies.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { isFinal } from '@matting/queue/job.ts';
import type { FastifyReply, FastifyRequest } from 'fastify';

/** The equivalent request of /v1. */
export interface PictureRequest extends Pick<KeylessSubmission, 'requireImage'> {
  readonly request: MattingRequest;
  readonly backgroundGiven: boolean;
  readonly ignored: readonly string[];
}

export type PicturedJob = Pick<Job, 'id' | 'result' | 'finishing'>;

export interface PictureInterface<Body, Requested extends PictureRequest> {
  /**
   * The namespace of derived keys. It must never change: a repeated request finds its job by it.
   */
  readonly namespace: string;
  readonly waitMs: number;
  readonly read: (request: IncomingMessage, uploads: RequestUploads) => Promise<Body>;
  readonly parse: (body: Body) => Requested;
  readonly headersOf?: (job: PicturedJob, requested: Requested) => Readonly<Record<string, string>>;
  /** The JSON before and after the picture in Base64. Absent: the answer is never JSON. */
  readonly jsonOf?: (job: PicturedJob) => readonly [start: string, end: string];
}

/**
 * The same request joins its job, or gets its result again, until this long after the job's end:
 * longer than any client retries, and short enough for a person who wants a new picture.
 */
const REMEMBERED_MS = 600_000;
const RETRY_AFTER_S = 2;

export class PictureRoute<Body, Requested extends PictureRequest> {
  readonly #services: CoreServices;
  readonly #recheckCaller: PictureChecks['recheckCaller'];
  readonly #interface: PictureInterface<Body, Requested>;

  constructor(
    services: CoreServices,
    { recheckCaller }: Pick<PictureChecks, 'recheckCaller'>,
    of: PictureInterface<Body, Requested>,
  ) {
    this.#services = services;
    this.#recheckCaller = recheckCaller;
    this.#interface = of;
  }

  /** @throws ContractError every code of a refused submission, and of a job that failed */
  readonly answer = async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const { job: submitted, created, asked: requested } = await this.#submit(request, reply);
    const { waitMs } = this.#interface;
    const job = await waitForEnd(this.#services.waitForJob, submitted, waitMs, reply);
    if (!isFinal(job)) throw notYet(job);
    const refusal = jobErrorOf(job);
    reply.headers(serverTimingOf(job));
    if (refusal !== undefined) throw refusal;
    try {
      return await this.#send(request, reply, { job, created, asked: requested });
    } catch (cause) {
      throw withJob(cause, job.id);
    }
  };

  async #submit(request: FastifyRequest, reply: FastifyReply) {
    const { uploads, submitMatting } = this.#services;
    const { namespace, read, parse } = this.#interface;
    const pictures = uploads.beginBoth(callerOf(request).accountId, request.raw);
    try {
      wantBody(request, reply);
      const body = await read(request.raw, pictures);
      const recheckCaller = () => this.#recheckCaller(request);
      const caller = await recheckCaller();
      const requested = parse(body);
      const submitted = await submitMatting.submitKeyless({
        ...{ caller, recheckCaller, mode: 'sync' },
        ...{ request: requested.request, backgroundGiven: requested.backgroundGiven },
        ...{ upload: pictures.image, backgroundUpload: pictures.background },
        derivedKey: { namespace, rememberedMs: REMEMBERED_MS },
        ...(requested.requireImage && { requireImage: requested.requireImage }),
      });
      noteJob(request, submitted.job.id);
      return { ...submitted, asked: requested };
    } finally {
      await pictures.end();
    }
  }

  async #send(
    request: FastifyRequest,
    reply: FastifyReply,
    { job, created, asked: requested }: Submitted & { readonly asked: Requested },
  ): Promise<FastifyReply> {
    const { resultDownload, resultReaders } = this.#services;
    const { headersOf, jsonOf } = this.#interface;
    const file = resultDownload.fileOf(job);
    const picture = await openForReader(reply, file, resultReaders);
    reply.code(200).headers({
      'x-credits-charged': created ? '1' : '0',
      'x-job-id': job.id,
      ...(requested.ignored.length === 0
        ? {}
        : { 'x-ignored-fields': requested.ignored.join(', ') }),
      ...headersOf?.(job, requested),
    });
    if (jsonOf !== undefined) reply.header('vary', 'accept');
    if (jsonOf === undefined || !wantsJsonAlone(request.headers.accept, PICTURES)) {
      reply.headers({ 'content-type': file.contentType, 'content-length': file.bytes });
      return reply.send(picture);
    }
    const [start, end] = jsonOf(job);
    const bytes = start.length + 4 * Math.ceil(file.bytes / 3) + end.length;
    reply.headers({ 'content-type': 'application/json; charset=utf-8', 'content-length': bytes });
    return reply.send(inJson(start, picture, end));
  }
}

function notYet({ id }: Pick<Job, 'id'>): ContractError {
  const detail = 'The service is still processing the image. Send the same request again.';
  return new ContractError('SERVICE_UNAVAILABLE', detail, {
    jobId: id,
    retryAfterS: RETRY_AFTER_S,
  });
}

function inJson(start: string, picture: Readable, end: string): Readable {
  const body = Readable.from(base64Between(start, picture, end), { objectMode: false });
  // If the reader leaves before the first piece, the generator never starts, so its cleanup never
  // runs.
  return body.once('close', () => picture.destroy());
}

async function* base64Between(
  start: string,
  picture: Readable,
  end: string,
): AsyncGenerator<string> {
  yield start;
  let left: Buffer = Buffer.alloc(0);
  for await (const piece of picture as AsyncIterable<Buffer>) {
    const bytes = left.length === 0 ? piece : Buffer.concat([left, piece]);
    const whole = bytes.length - (bytes.length % 3);
    left = Buffer.from(bytes.subarray(whole));
    yield bytes.toString('base64', 0, whole);
  }
  yield `${left.toString('base64')}${end}`;
}

const PICTURES = ['image/png', 'image/jpeg', 'image/webp', 'application/zip'];

interface PictureChecks {
  readonly submission: Check[];
  /** Authenticates the caller again after the body, in case the key was revoked meanwhile. */
  readonly recheckCaller: ReturnType<typeof callerRecheck>;
}

/** @param of.body checks the headers of a body; absent: requests have no body */
export function createPictureChecks(
  services: CoreServices,
  connections: Connections,
  of: {
    readonly body?: Check;
    readonly tokenOf?: (request: FastifyRequest) => string;
    readonly writeRate?: Parameters<typeof requireRate>[2];
  },
): PictureChecks {
  const apiKey = requireApiKey(services, 'submit', of.tokenOf ?? apiKeyOf);
  return {
    submission: [
      apiKey,
      requireRate(services.rateLimits, 'submissions', of.writeRate),
      ...(of.body === undefined ? [] : [of.body]),
      holdSlot(connections),
    ],
    recheckCaller: callerRecheck(apiKey),
  };
}
