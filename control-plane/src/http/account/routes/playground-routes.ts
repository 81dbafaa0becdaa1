/** The playground: a picture with the API's options, its result, and the same call as code. */
import type { IncomingMessage } from 'node:http';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { ContractError } from '#contract/errors.ts';
import { REQUEST_BODY_BYTES_MAX } from '#contract/limits.ts';
import { type Job, publicState } from '../../../domain/job.ts';
import type {
  PlaygroundAnswer,
  UsePlayground,
} from '../../../services/playground/use-playground.ts';
import type { ResultDownload } from '../../../services/reading/result-download.ts';
import type { ResultReaders } from '../../../services/reading/result-readers.ts';
import { noteJob } from '../../answers/answer-log.ts';
import { bodyChunks } from '../../body/body-chunks.ts';
import { bodyFormOf } from '../../body/body-form.ts';
import { MultipartReader } from '../../body/multipart-reader.ts';
import { wantBody } from '../../connections/unread-body.ts';
import { formatsOf, wordsOf } from '../page/page-request.ts';
import { renderPage } from '../page/render-page.ts';
import { createSecret } from '../session/cookies.ts';
import { readGuarded } from '../session/guard.ts';
import { PageError } from '../session/page-error.ts';
import { signedInOf } from '../session/signed-in.ts';
import { type PlaygroundRefusal, playgroundPage } from '../views/jobs/playground-page.ts';
import { demoPicture } from './demo-picture.ts';
import { type Options, optionsOfQuery, PlaygroundForm } from './playground-form.ts';
import { sendResultOf } from './result-file.ts';

export interface PlaygroundRouteServices {
  readonly playground: UsePlayground;
  readonly resultDownload: Pick<ResultDownload, 'fileOf'>;
  readonly resultReaders: Pick<ResultReaders, 'enter'>;
}

/** Between two looks of a page without scripts at a job that is open. */
const REFRESH_S = 2;
const USE = { config: { permission: 'playground.use' } } as const;
/** Its body is a form with files, which is read as it arrives. */
const SEND = { config: { permission: 'playground.use', body: 'multipart' } } as const;

type JobRequest = FastifyRequest<{ Params: { jobId: string } }>;

export function registerPlaygroundRoutes(
  account: FastifyInstance,
  services: PlaygroundRouteServices,
  options: { readonly baseUrl: string },
): void {
  const routes = new PlaygroundRoutes(services, options.baseUrl);
  account.get('/playground', USE, (request, reply) => routes.show(request, reply, {}));
  account.post('/playground', SEND, (request, reply) => routes.send(request, reply));
  account.get('/playground/demo.jpg', USE, async (_request, reply) =>
    reply
      .type('image/jpeg')
      .header('cache-control', 'private')
      .send(await demoPicture()),
  );
  account.get('/playground/:jobId', USE, (request: JobRequest, reply) =>
    routes.showJob(request, reply),
  );
  account.get('/playground/:jobId/result', USE, (request: JobRequest, reply) =>
    routes.sendResult(request, reply),
  );
}

interface Shown {
  readonly job?: Job;
  readonly options?: Options;
  readonly refusal?: PlaygroundRefusal;
  readonly status?: number;
}

class PlaygroundRoutes {
  readonly #services: PlaygroundRouteServices;
  readonly #baseUrl: string;

  constructor(services: PlaygroundRouteServices, baseUrl: string) {
    this.#services = services;
    this.#baseUrl = baseUrl;
  }

  async show(request: FastifyRequest, reply: FastifyReply, shown: Shown): Promise<FastifyReply> {
    const { accountId, csrf } = signedInOf(request);
    const { playground } = this.#services;
    const words = wordsOf(request);
    const { job, refusal, status = 200, options = optionsOfQuery(request.query) } = shown;
    const main = playgroundPage({
      words,
      formats: formatsOf(request),
      csrf,
      once: createSecret(),
      baseUrl: this.#baseUrl,
      allowance: playground.isOn ? await playground.allowance(accountId) : undefined,
      options,
      refusal,
      job: job && { ...job, status: publicState(job) },
    });
    const { title, lead } = words.playground;
    const scripts = ['compare.js', 'playground.js'];
    return renderPage(request, reply, { title, lead, active: 'playground', status, scripts, main });
  }

  /** Answers with the job's page; a refusal with the form as it was sent, without its files. */
  async send(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    const { accountId } = signedInOf(request);
    const { playground } = this.#services;
    if (!playground.isOn) throw new PageError('notFound');
    const boundary = requireBoundary(request.raw);
    let form: PlaygroundForm | undefined;
    try {
      const answer = await playground.submit(accountId, uploads =>
        readGuarded(request, async requireFormToken => {
          form = new PlaygroundForm(uploads, requireFormToken);
          wantBody(request, reply);
          await readParts(request.raw, boundary, form);
          return form.finish();
        }),
      );
      return await this.#answer(request, reply, answer, form?.options);
    } catch (error) {
      const refused = refusalOf(error);
      if (refused === undefined) throw error;
      if (refused.retryAfterS !== undefined) reply.header('retry-after', refused.retryAfterS);
      return await this.show(request, reply, { ...refused, options: form?.options ?? new Map() });
    }
  }

  async showJob(request: JobRequest, reply: FastifyReply): Promise<FastifyReply> {
    const job = await this.#find(request);
    const status = publicState(job);
    // Without scripts the page looks again by itself; the script takes the header for nothing.
    if (status === 'queued' || status === 'processing') reply.header('refresh', REFRESH_S);
    return this.show(request, reply, { job });
  }

  async sendResult(request: JobRequest, reply: FastifyReply): Promise<FastifyReply> {
    const job = await this.#find(request);
    return sendResultOf(reply, job, this.#services);
  }

  async #find(request: JobRequest): Promise<Job> {
    const { accountId } = signedInOf(request);
    const job = await this.#services.playground.find(accountId, request.params.jobId);
    if (job === undefined) throw new PageError('notFound');
    noteJob(request, job.id);
    return job;
  }

  #answer(
    request: FastifyRequest,
    reply: FastifyReply,
    answer: PlaygroundAnswer,
    options: Options = new Map(),
  ): FastifyReply | Promise<FastifyReply> {
    if (answer.kind !== 'job') {
      return this.show(request, reply, { refusal: { kind: answer.kind }, options, status: 429 });
    }
    noteJob(request, answer.job.id);
    const query = new URLSearchParams([...options]).toString();
    const path = `/account/playground/${answer.job.id}`;
    return reply.redirect(query === '' ? path : `${path}?${query}`, 303);
  }
}

/** @throws PageError badForm: no form with files, or one that is too large */
function requireBoundary(request: IncomingMessage): string {
  const form = bodyFormOf(request);
  const isCoded = request.headers['content-encoding'] !== undefined;
  if (form?.kind !== 'multipart' || isCoded) throw new PageError('badForm');
  return form.boundary;
}

async function readParts(
  request: IncomingMessage,
  boundary: string,
  form: PlaygroundForm,
): Promise<void> {
  const reader = new MultipartReader(boundary);
  for await (const chunk of bodyChunks(request, { bytesMax: REQUEST_BODY_BYTES_MAX })) {
    for (const event of reader.push(chunk)) await form.take(event);
  }
  reader.finish();
}

/** What the page says of an error; undefined: it is no refusal of what was sent. */
function refusalOf(
  error: unknown,
): (Shown & { readonly retryAfterS?: number | undefined }) | undefined {
  if (!(error instanceof ContractError)) return undefined;
  if (error.code === 'SERVICE_UNAVAILABLE') {
    const { retryAfterS } = error;
    return { refusal: { kind: 'busy' }, status: 503, retryAfterS };
  }
  if (error.spec.http >= 500) return undefined;
  const [field] = error.fieldErrors;
  return { refusal: { kind: 'invalid', code: error.code, field: field?.field }, status: 422 };
}
