/**
 * Submits the playground's pictures like those of the API (submit-matting.ts), without credits,
 * after counting each in the daily allowance (docs/adr/0022).
 */

import type { Caller } from '@matting/accounts/keys/caller.ts';
import { NOT_IN_A_CORRECTION } from '@matting/core/corrections/correctable.ts';
import { MattingForm } from '@matting/core/http/read-matting-body.ts';
import type { Job } from '@matting/core/jobs/job.ts';
import type { CoreServices, CoreStores } from '@matting/core/package.ts';
import type { RequestUploads } from '@matting/core/submission/image-uploads.ts';
import type { MattingFields } from '@matting/core/submission/matting-request.ts';
import { unknownField } from '@matting/http/body-fields.ts';
import type { PartEvent, PartHead } from '@matting/http/multipart.ts';
import { Semaphore } from '@matting/program/semaphore.ts';
import { ContractError, unavailable } from '@matting/proto/contract/errors.ts';
import { FINISHING_FIELDS } from '@matting/proto/contract/finishing/table.ts';
import { assetBytes } from '../page/assets.ts';
import { SAMPLES, sampleFile } from '../page/stage.ts';
import { CSRF_FIELD } from '../session/form-token.ts';
import { isSecret } from '../session/secret.ts';
import { PageError } from '../session/visit.ts';
import type { PlaygroundStore } from './playground-store.ts';

const PLAYGROUND_PICTURES_MAX = 16;
const PICTURES_RETRY_AFTER_S = 5;

type SubmitMatting = CoreServices['submitMatting'];
type Submission = Parameters<SubmitMatting['submit']>[0];
type SentForm = Omit<Submission, 'caller' | 'recheckCaller' | 'mode' | 'unpaidDayMs' | 'accepts'>;

interface PlaygroundDependencies {
  readonly playground: PlaygroundStore;
  readonly jobs: Pick<CoreStores['jobs'], 'findForKey'>;
  readonly uploads: CoreServices['uploads'];
  readonly submitMatting: Pick<
    CoreServices['submitMatting'],
    'submit' | 'submitCorrection' | 'findMade'
  >;
  readonly rateLimits: Pick<CoreServices['rateLimits'], 'take'>;
  /** Jobs keep their input as long as the result, so that people can correct what they see. */
  readonly isCorrectable: () => boolean;
  readonly imagesMax: number;
}

export interface PlaygroundAllowance {
  readonly imagesMax: number;
  readonly left: number;
  readonly resetsAtMs: number;
}

type OnOnce = (once: string) => Promise<void>;
/** Reads a body into the uploads. @returns its fields */
type ReadPictures = (
  uploads: RequestUploads,
  onOnce?: OnOnce,
) => Promise<{
  readonly fields: MattingFields;
  /** Random text of the form, so that sending it twice is one request. */
  readonly once: string;
}>;

export class AllowanceError extends Error {}

export class UsePlayground {
  readonly #dependencies: PlaygroundDependencies;
  /** A picture takes a slot once it is complete, so that a slow one blocks nobody. */
  readonly #complete = new Semaphore({
    max: PLAYGROUND_PICTURES_MAX,
    waitingMax: 0,
    refusal: () => unavailable('The playground is busy. Try again later.', PICTURES_RETRY_AFTER_S),
  });

  constructor(dependencies: PlaygroundDependencies) {
    this.#dependencies = dependencies;
  }

  get isOn(): boolean {
    return this.#dependencies.imagesMax > 0;
  }

  async allowance(accountId: string): Promise<PlaygroundAllowance> {
    const { playground, imagesMax } = this.#dependencies;
    const { used, resetsAtMs } = await playground.usage(accountId);
    return { imagesMax, left: Math.max(0, imagesMax - used), resetsAtMs };
  }

  /**
   * If today's pictures are used up, the body is read up to the form's `once`, since a form that
   * was sent before leads to its job.
   * @throws ContractError what is wrong with the picture or a field; SERVICE_UNAVAILABLE
   * @throws AllowanceError
   */
  async submit(accountId: string, read: ReadPictures): Promise<Job> {
    const { playground, submitMatting, isCorrectable } = this.#dependencies;
    const { left } = await this.allowance(accountId);
    const caller = { accountId, apiKeyId: await playground.internalKey(accountId) };
    let made: Job | undefined;
    const findMade = async (once: string): Promise<never> => {
      made = await submitMatting.findMade(caller, once);
      throw new AllowanceError(`account ${accountId} has used its pictures of today`);
    };
    const reading: ReadPictures = uploads => read(uploads, left === 0 ? findMade : undefined);
    try {
      return await this.#read(accountId, reading, async ({ fields, ...sent }) => {
        const unpaidDayMs = await playground.take(accountId, this.#dependencies.imagesMax);
        if (unpaidDayMs === undefined) return await findMade(sent.idempotencyKey);
        return await this.#submitCounted({
          ...{ ...sent, ...sentBy(caller), unpaidDayMs },
          fields: isCorrectable() ? keeping(fields) : fields,
        });
      });
    } catch (error) {
      if (made !== undefined) return made;
      throw error;
    }
  }

  /** Returns the picture unless it made a job. If the database cannot tell, it stays counted. */
  async #submitCounted(sent: Submission & { readonly unpaidDayMs: number }) {
    const { playground, submitMatting } = this.#dependencies;
    const { caller, idempotencyKey, upload, unpaidDayMs } = sent;
    const giveBack = () => playground.giveBack(caller.accountId, unpaidDayMs);
    const submitted = await submitMatting.submit(sent).catch(async error => {
      // The answer of a transaction that made the job may be lost.
      const made = await submitMatting.findMade(caller, idempotencyKey);
      if (made?.id !== upload.jobId) await giveBack();
      throw error;
    });
    if (!submitted.created) await giveBack();
    return submitted;
  }

  /**
   * Corrects another job of the account under that job's key, without a credit and outside of the
   * allowance.
   * @param find the job, after the token was checked
   * @throws ContractError as `submit`; JOB_NOT_CORRECTABLE, RESULT_EXPIRED, CORRECTIONS_EXHAUSTED;
   * RATE_LIMITED; what `find` throws
   */
  async correct(accountId: string, find: () => Promise<Job>, read: ReadPictures): Promise<Job> {
    const { submitMatting, rateLimits } = this.#dependencies;
    const { allowed, resetS } = await rateLimits.take(accountId, 'submissions');
    if (!allowed) {
      const detail = 'The account is over its limit of submissions.';
      throw new ContractError('RATE_LIMITED', detail, { retryAfterS: resetS });
    }
    return await this.#read(accountId, read, async sent => {
      const job = await find();
      const caller = { accountId, apiKeyId: job.apiKeyId };
      const by = { ...sentBy(caller), unpaidDayMs: job.unpaidDayMs };
      return submitMatting.submitCorrection({ ...sent, corrects: job, ...by });
    });
  }

  async #read(
    accountId: string,
    read: ReadPictures,
    submit: (sent: SentForm) => ReturnType<SubmitMatting['submit']>,
  ): Promise<Job> {
    const pictures = this.#dependencies.uploads.beginBoth(accountId);
    try {
      const { fields, once } = await read(pictures);
      const { image: upload, background: backgroundUpload, hints: hintsUpload } = pictures;
      const sent = { fields, idempotencyKey: once, upload, backgroundUpload, hintsUpload };
      const { job } = await this.#complete.run({ key: accountId }, () => submit(sent));
      return job;
    } finally {
      await pictures.end();
    }
  }

  async find(accountId: string, jobId: string): Promise<Job | undefined> {
    const { playground, jobs } = this.#dependencies;
    const apiKeyId = await playground.findKey(accountId);
    return apiKeyId === undefined ? undefined : jobs.findForKey(jobId, apiKeyId);
  }
}

/** The session and the role authorize the person, so the key is not checked. */
function sentBy(caller: Caller) {
  return { caller, recheckCaller: async () => caller, mode: 'async' as const };
}

function keeping(fields: MattingFields): MattingFields {
  return { ...fields, texts: new Map([...fields.texts, ['correctable', 'true']]) };
}

/** Fields of the API that the form has as texts. A background is a file, not a URL. */
export const PLAYGROUND_OPTIONS = [
  'model',
  'output_format',
  ...FINISHING_FIELDS.filter(field => field !== 'background_url'),
  'subject_box',
  'no_subject',
] as const;
type PlaygroundOption = (typeof PLAYGROUND_OPTIONS)[number];
const FILES = ['image_file', 'background_file'] as const;
/** Fields of the page itself. `once`: random text. `sample`: names a picture in place of a file. */
const OWN = [CSRF_FIELD, 'once', 'sample'] as const;
const SHAPES: readonly string[] = ['keep', 'erase'];
/** The page's script fills in the file's name. */
const NAME = 'reference';
/** Longer values are refused. Every real option and token fits. */
const OPTION_BYTES_MAX = 200;

export type Options = ReadonlyMap<PlaygroundOption, string>;

/**
 * Reads the form as it arrives: the session's token before any byte of a file. Empty fields count
 * as absent.
 */
export class PlaygroundForm {
  readonly #form: MattingForm;
  readonly #requireToken: (token: string) => void;
  readonly #isCorrection: boolean;
  readonly #onOnce: OnOnce | undefined;
  readonly #texts = new Map<string, string>();
  #trusted = false;
  /** Its head is passed on with its first byte, since an empty field is absent. */
  #part: { readonly head: PartHead; begun: boolean; text: string } | undefined;

  constructor(
    uploads: RequestUploads,
    requireToken: (token: string) => void,
    { isCorrection = false, onOnce }: { isCorrection?: boolean; onOnce?: OnOnce | undefined } = {},
  ) {
    this.#form = new MattingForm(uploads, isCorrection ? NOT_IN_A_CORRECTION : []);
    this.#requireToken = requireToken;
    this.#isCorrection = isCorrection;
    this.#onOnce = onOnce;
  }

  async take(event: PartEvent): Promise<void> {
    if (event.kind === 'head') {
      this.#part = { head: event.head, begun: false, text: '' };
      this.#requireKnown(event.head);
      return;
    }
    const part = this.#part;
    if (part === undefined) throw new Error('a part has bytes before its head');
    if (event.kind === 'end') {
      this.#part = undefined;
      await this.#end(part);
    } else if (event.bytes.length > 0) {
      if (!part.head.isFile && ![...SHAPES, NAME].includes(part.head.name))
        this.#collect(part, event.bytes);
      if (!isOwn(part.head)) await this.#passOn(part, event);
    }
  }

  get options(): Options {
    const given = PLAYGROUND_OPTIONS.flatMap(name => {
      const text = this.#texts.get(name);
      return text === undefined ? [] : [[name, text] as const];
    });
    return new Map(given);
  }

  /** @throws PageError; ContractError INVALID_IMAGE_SOURCE: no picture, or two */
  async finish() {
    const once = this.#texts.get('once') ?? '';
    if (!this.#trusted || !isSecret(once)) throw new PageError('staleForm');
    await this.#takeSample();
    return { fields: this.#form.finish(), once };
  }

  #requireKnown({ name, isFile }: PartHead): void {
    if (OWN.some(own => own === name)) {
      if (isFile) throw new PageError('badForm');
      return;
    }
    if (!this.#trusted) throw new PageError('staleForm');
    if (!this.#known(isFile).includes(name)) throw unknownField(name);
  }

  #known(isFile: boolean): readonly string[] {
    if (this.#isCorrection) return isFile ? [] : SHAPES;
    return isFile ? FILES : [...PLAYGROUND_OPTIONS, NAME];
  }

  #collect(part: { text: string }, bytes: Buffer): void {
    if (part.text.length + bytes.length > OPTION_BYTES_MAX) throw new PageError('badForm');
    part.text += bytes.toString('latin1');
  }

  async #passOn(part: { readonly head: PartHead; begun: boolean }, event: PartEvent) {
    if (!part.begun) await this.#form.take({ kind: 'head', head: part.head });
    part.begun = true;
    await this.#form.take(event);
  }

  async #end(part: { readonly head: PartHead; begun: boolean; text: string }): Promise<void> {
    const { name, isFile } = part.head;
    if (part.begun) await this.#form.take({ kind: 'end' });
    if (isFile || part.text === '') return;
    const text = Buffer.from(part.text, 'latin1').toString();
    if (isOwn(part.head) && this.#texts.has(name)) throw new PageError('badForm');
    this.#texts.set(name, text);
    if (name === 'once' && this.#trusted && isSecret(text)) await this.#onOnce?.(text);
    if (name !== CSRF_FIELD) return;
    this.#requireToken(text);
    this.#trusted = true;
  }

  async #takeSample(): Promise<void> {
    const name = this.#texts.get('sample');
    if (name === undefined) return;
    const sample = SAMPLES.find(one => one === name);
    if (sample === undefined) throw new PageError('badForm');
    const head = { name: 'image_file', isFile: true, isAscii: false };
    await this.#form.take({ kind: 'head', head });
    await this.#form.take({ kind: 'data', bytes: assetBytes(sampleFile(sample)) });
    await this.#form.take({ kind: 'end' });
  }
}

function isOwn({ name }: PartHead): boolean {
  return OWN.some(own => own === name);
}

export function optionsOfQuery(query: unknown): Options {
  const given = new Map<PlaygroundOption, string>();
  for (const name of PLAYGROUND_OPTIONS) {
    const text = (query as Record<string, unknown> | null)?.[name];
    if (typeof text !== 'string' || text === '' || text.length > OPTION_BYTES_MAX) continue;
    // Skips texts with characters that could break a line of the call.
    if (/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u.test(text)) continue;
    given.set(name, text);
  }
  return given;
}
