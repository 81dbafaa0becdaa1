/**
 * Runs the tools. An answer holds a text for the agent and the same facts as fields. A failure is a
 * tool error with advice.
 */

import {
  apiKeyOf,
  callerOf,
  callerRecheck,
  requireApiKey,
} from '@matting/core/http/header-checks.ts';
import type { Job } from '@matting/core/jobs/job.ts';
import type { JobOutcome } from '@matting/core/jobs/job-outcome.ts';
import type { CoreServices } from '@matting/core/package.ts';
import { jobErrorOf, withJob } from '@matting/core/results/job-errors.ts';
import { waitForEnd } from '@matting/core/results/wait-for-job.ts';
import type { ImageUpload } from '@matting/core/submission/image-upload.ts';
import { requireMattingRequest } from '@matting/core/submission/matting-request.ts';
import type { Submitted } from '@matting/core/submission/submit-matting.ts';
import { noteJob } from '@matting/http/answer-log.ts';
import { noteRefusal } from '@matting/http/error-handler.ts';
import { problemOf } from '@matting/http/problems.ts';
import { ContractError, type ErrorCode } from '@matting/proto/contract/errors.ts';
import type { ResultWarning } from '@matting/proto/contract/finishing.ts';
import { isFinal, type JobStatus } from '@matting/queue/job.ts';
import type { CallToolResult } from '@modelcontextprotocol/server';
import type { FastifyReply, FastifyRequest } from 'fastify';
import {
  type Arguments,
  type ReadArguments,
  readArguments,
  withoutIdleZeros,
} from './arguments.ts';
import { UPLOADS_PATH } from './upload-route.ts';
import { ADDRESS_MS, KEPT_MS, UPLOADS_OF_ACCOUNT_MAX, type UploadStore } from './upload-store.ts';

/** Most agents give up on a call after 60 s, and then repeat it. */
const WAIT_MS_MAX = 45_000;
/**
 * A repeated call joins the job, or gets its result again, until this long after the job's end.
 * Agents give up sooner; people who want another result come later.
 */
const DERIVED_KEY = { namespace: 'mcp', rememberedMs: 600_000 };
const RETRY_AFTER_S = 5;
const UPLOADS_RETRY_AFTER_S = 60;

/** Advice on errors that a repetition does not cure. */
const ADVICE: Partial<Record<ErrorCode, string>> = {
  INSUFFICIENT_CREDITS: 'Tell the user that the account needs credits.',
  KEY_CAP_REACHED: 'Tell the user to raise the cap of the API key, or to use another key.',
  KEY_NOT_ALLOWED: 'Tell the user to use another API key.',
  INVALID_API_KEY: 'Tell the user to use another API key.',
  INVALID_IMAGE_SOURCE:
    'Send a public image_url, or call create_upload for a file on this machine and send its image_id.',
  JOB_NOT_FOUND: 'Send the job_id from an answer to this API key.',
  INVALID_IDEMPOTENCY_KEY:
    'Send an idempotency_key of 1 to 128 printable ASCII characters, or leave it out.',
  IDEMPOTENCY_CONFLICT: 'Send another idempotency_key for this image.',
};

const WARNED: Readonly<Record<ResultWarning, string>> = {
  no_subject:
    'No subject was found (no_subject), so the result is empty or nearly empty. Tell the user.',
  subject_unsure: 'The subject is unsure (subject_unsure): look at the result before using it.',
  subject_cut_off: 'The edges of the image cut the subject off (subject_cut_off).',
};

export interface ToolOptions {
  readonly baseUrl: string;
  readonly syncWaitMs: number;
  readonly policy: Parameters<typeof requireMattingRequest>[1];
}

export interface Calling {
  readonly request: FastifyRequest;
  readonly reply: FastifyReply;
  readonly image: ImageUpload;
  readonly longTexts: number;
  /** Frees the message's slot among concurrent answers (AnswerShares). */
  readonly leave: () => void;
  /**
   * Counts a submission against the rate, once per message, and calls `leave`.
   * @throws ContractError KEY_NOT_ALLOWED, RATE_LIMITED
   */
  readonly admitSubmission: () => Promise<void>;
}

type Run = (calling: Calling, given: Arguments) => Promise<CallToolResult>;

export class CallTools {
  readonly #services: CoreServices;
  readonly #uploads: UploadStore;
  readonly #options: ToolOptions;
  readonly #runs = new Map<string, Run>([
    ['remove_background', (calling, given) => this.#removeBackground(calling, given)],
    ['create_upload', calling => this.#createUpload(calling)],
    ['correct_cutout', (calling, given) => this.#correctCutout(calling, given)],
    ['get_job', (calling, given) => this.#getJob(calling, given)],
    ['get_account', calling => this.#getAccount(calling)],
    ['list_models', calling => this.#listModels(calling)],
  ]);

  constructor(services: CoreServices, uploads: UploadStore, options: ToolOptions) {
    this.#services = services;
    this.#uploads = uploads;
    this.#options = options;
  }

  modelsFor(request: FastifyRequest): readonly string[] {
    return this.#services.models.list(callerOf(request).policy).models.map(({ name }) => name);
  }

  /** Undefined: no such tool exists. Never rejects. */
  async call(
    name: string,
    calling: Calling,
    given: Arguments,
  ): Promise<CallToolResult | undefined> {
    try {
      return await this.#runs.get(name)?.(calling, given);
    } catch (error) {
      return this.#refused(noteRefusal(error, calling.request), calling.request);
    }
  }

  async #removeBackground(calling: Calling, given: Arguments): Promise<CallToolResult> {
    await this.#callerOf(calling.request, 'submit');
    await calling.admitSubmission();
    const read = readArguments('remove_background', given, calling.longTexts);
    const submitted = await this.#submit(calling, read);
    return await this.#answerSubmitted(calling, submitted, read);
  }

  async #createUpload({ request, admitSubmission }: Calling): Promise<CallToolResult> {
    const caller = await this.#callerOf(request, 'submit');
    await admitSubmission();
    const upload = await this.#uploads.create(caller);
    if (upload === undefined) {
      const detail = `The account has ${UPLOADS_OF_ACCOUNT_MAX} uploads of the last half hour.`;
      throw new ContractError('RATE_LIMITED', detail, { retryAfterS: UPLOADS_RETRY_AFTER_S });
    }
    const url = `${this.#options.baseUrl}${UPLOADS_PATH}/${upload.token}`;
    const command = `curl --fail-with-body -T photo.jpg '${url}'`;
    const text =
      `Run this with the path of the file in place of photo.jpg, within 10 minutes:\n${command}\n` +
      `Then call remove_background with image_id ${upload.id}, as often as you need within 30 minutes.`;
    return toolResult(text, {
      image_id: upload.id,
      upload_url: url,
      method: 'PUT',
      command,
      upload_until: new Date(upload.createdAtMs + ADDRESS_MS).toISOString(),
      usable_until: new Date(upload.createdAtMs + KEPT_MS).toISOString(),
    });
  }

  /**
   * Copies the upload, so that further calls can use it, even after a refusal.
   * @throws ContractError INVALID_IMAGE_SOURCE
   */
  async #takeUpload({ request, image }: Calling, imageId: string): Promise<void> {
    const upload = await this.#uploads.findForKey(callerOf(request).apiKeyId, imageId);
    if (upload === undefined) throw noImage('names no upload of this API key, or one that is over');
    const { blob, known } = upload;
    if (blob === null) throw noImage('has no image yet. Send the file to its upload_url');
    const open = () => this.#services.blobs.openRead(blob);
    if (known !== undefined) return image.takeCopy({ ...known, open });
    // If a replica of an earlier release received the upload, it stored no facts about it.
    image.takeBytes('image_id');
    for await (const piece of await open()) await image.write(piece);
  }

  async #submit(calling: Calling, read: ReadArguments): Promise<Submitted> {
    const { request, image } = calling;
    const { submitMatting } = this.#services;
    const { idempotencyKey, base64, imageId } = read;
    const asRequest = (given: ReadArguments['fields']) => ({
      fields: given,
      matting: requireMattingRequest(given, this.#options.policy),
    });
    const { fields, matting } = await withoutIdleZeros(read, asRequest);
    if (base64 !== '') await image.write(Buffer.from(base64));
    if (imageId !== undefined) await this.#takeUpload(calling, imageId);
    const sent = await this.#sentBy(request, image);
    if (idempotencyKey !== undefined) {
      return await submitMatting.submit({ ...sent, fields, idempotencyKey });
    }
    const derived = { request: matting, backgroundGiven: false, derivedKey: DERIVED_KEY };
    return await submitMatting.submitKeyless({ ...sent, ...derived });
  }

  async #correctCutout(calling: Calling, given: Arguments): Promise<CallToolResult> {
    const { request, image, longTexts } = calling;
    await this.#callerOf(request, 'submit');
    await calling.admitSubmission();
    const read = readArguments('correct_cutout', given, longTexts);
    const { idempotencyKey = DERIVED_KEY } = read;
    const sent = await this.#sentBy(request, image);
    const corrects = await this.#services.readJob(sent.caller, read.jobId);
    const submitted = await withoutIdleZeros(read, fields =>
      this.#services.submitMatting.submitCorrection({ ...sent, fields, corrects, idempotencyKey }),
    );
    return await this.#answerSubmitted(calling, submitted, read);
  }

  async #sentBy(request: FastifyRequest, upload: ImageUpload) {
    const recheckCaller = () => this.#callerOf(request, 'submit');
    return { caller: await recheckCaller(), recheckCaller, mode: 'sync' as const, upload };
  }

  async #answerSubmitted(
    calling: Calling,
    { job, created }: Submitted,
    { preview }: ReadArguments,
  ): Promise<CallToolResult> {
    noteJob(calling.request, job.id);
    // If the call joined a job, its own image must not hold a slot during the wait.
    await calling.image.abort();
    const note = created ? '' : ' An earlier call made it.';
    return await this.#answer(calling, job, { note, preview });
  }

  async #getJob(calling: Calling, given: Arguments): Promise<CallToolResult> {
    // This tool takes no image, so a long text is not uploaded.
    await calling.image.abort();
    const caller = await this.#callerOf(calling.request, 'read');
    const { jobId, preview } = readArguments('get_job', given, calling.longTexts);
    const job = await this.#services.readJob(caller, jobId);
    noteJob(calling.request, job.id);
    return await this.#answer(calling, job, { note: '', preview });
  }

  async #getAccount({ request }: Calling): Promise<CallToolResult> {
    const caller = await this.#callerOf(request, 'account');
    const { readAccount } = this.#services;
    const account = await readAccount.view(caller);
    const { available, reserved } = account.credits;
    const spendable = await readAccount.spendable(caller);
    const ofKey = spendable < available ? ` This API key can spend ${spendable} of them.` : '';
    return toolResult(`${available} credits are available, ${reserved} reserved.${ofKey}`, account);
  }

  async #listModels({ request }: Calling): Promise<CallToolResult> {
    const offered = this.#services.models.list(callerOf(request).policy);
    const lines = offered.models.map(
      ({ name, default: isDefault, good_for: goodFor }) =>
        `${name}${isDefault ? ' (the default)' : ''}${goodFor === null ? '' : `: ${goodFor}`}`,
    );
    return toolResult(lines.join('\n') || 'Only the default model.', offered);
  }

  #callerOf(request: FastifyRequest, scope: 'submit' | 'read' | 'account') {
    return callerRecheck(requireApiKey(this.#services, scope, apiKeyOf))(request);
  }

  async #answer(
    { request, reply, leave }: Calling,
    submitted: Job,
    { note, preview }: { readonly note: string; readonly preview: boolean },
  ): Promise<CallToolResult> {
    const { waitForJob, jobViews } = this.#services;
    const waitMs = Math.min(WAIT_MS_MAX, this.#options.syncWaitMs);
    leave();
    const job = await waitForEnd(waitForJob, submitted, waitMs, reply);
    const refusal = jobErrorOf(job);
    if (refusal !== undefined) throw refusal;
    const { status_url: _, ...view } = jobViews.view(job);
    const { result } = view;
    if (result === undefined) {
      const again = `Call get_job with job_id ${job.id} for its result. It is charged only once.`;
      return toolResult(`The job is ${view.status}. ${again}`, view);
    }
    if (isFinal(submitted)) await this.#requireThere(job);
    const { url, format, width, height, sizeBytes, expiresAt } = result;
    const warned = result.warnings.map(warning => ` ${WARNED[warning]}`).join('');
    const summary = `${width} x ${height} pixels, ${sizeBytes} bytes of ${format.toUpperCase()}`;
    const shown = preview ? await this.#thumbnail(job, request) : undefined;
    const lacking = preview && shown === undefined ? ' It has no preview.' : '';
    const text = `The background is removed: ${summary}.${warned}${note}${lacking}`;
    return toolResult(`${text}\nUntil ${expiresAt}, without a key: ${url}`, view, shown);
  }

  /** The result is complete without a thumbnail, so errors only go to the log. */
  async #thumbnail(job: JobStatus & JobOutcome, { log }: FastifyRequest) {
    try {
      return await this.#services.resultDownload.readThumbnail(job);
    } catch (err) {
      log.warn({ err, jobId: job.id }, 'thumbnail not read');
      return undefined;
    }
  }

  async #requireThere(job: JobStatus & JobOutcome): Promise<void> {
    try {
      await this.#services.resultDownload.fileOf(job).requireThere();
    } catch (cause) {
      throw withJob(cause, job.id);
    }
  }

  #refused(error: ContractError, { id: requestId }: FastifyRequest): CallToolResult {
    const { code, retryable, retryAfterS = RETRY_AFTER_S, fieldErrors } = error;
    // The error of an unknown argument already says to leave it out.
    const isUnknown = error.message.startsWith('Unknown field');
    const fields = isUnknown ? '' : fieldErrors.map(({ field }) => field).join(' and ');
    const correct = fields === '' ? 'Do not repeat this call unchanged.' : `Correct ${fields}.`;
    const advice = retryable
      ? `Make the same call again in ${Math.ceil(retryAfterS)} seconds. It is charged only once.`
      : (ADVICE[code] ?? correct);
    const { baseUrl } = this.#options;
    const problem = problemOf(error, { baseUrl, requestId });
    const detail = withoutHttp(error.message);
    const errors = fieldErrors.map(one => ({ ...one, detail: withoutHttp(one.detail) }));
    const fieldsShown = { ...problem, detail, ...(errors.length > 0 && { errors }) };
    return { ...toolResult(`${code}: ${detail} ${advice}`, fieldsShown), isError: true };
  }
}

function noImage(wrong: string): ContractError {
  const fieldErrors = [{ field: 'image_id', detail: wrong }];
  return new ContractError('INVALID_IMAGE_SOURCE', `image_id ${wrong}.`, { fieldErrors });
}

/** Sentences about HTTP, which an agent cannot act on. */
const OF_HTTP = /\/v1\/|Retry-After|status_url|\bheader\b|^Send the image itself/;

function withoutHttp(message: string): string {
  const named = message.replaceAll('GET /v1/models', 'list_models');
  const sentences = named.split(/(?<=[.?]) (?=[A-Za-z])/).filter(one => !OF_HTTP.test(one));
  return (sentences.join(' ') || named)
    .replaceAll('Idempotency-Key', 'idempotency_key')
    .replace('background_file, ', '');
}

/** Some agents show their model the text, others the fields, so both hold everything. */
function toolResult(text: string, fields: object, picture?: Buffer): CallToolResult {
  const data = picture?.toString('base64');
  return {
    content: [
      { type: 'text', text },
      ...(data === undefined ? [] : [{ type: 'image', data, mimeType: 'image/webp' } as const]),
    ],
    structuredContent: { message: text, ...fields },
  };
}
