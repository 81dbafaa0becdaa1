/**
 * The playground: a drop zone for a picture, the API's options, and the equivalent call.
 * assets/playground.js sends the form without leaving the page, and puts the outcome into
 * `#outcome`.
 */

import type { IncomingMessage } from 'node:http';
import { bodyFormOf } from '@matting/core/http/read-matting-body.ts';
import type { Job } from '@matting/core/jobs/job.ts';
import type { Core, CoreServices } from '@matting/core/package.ts';
import { noteJob } from '@matting/http/answer-log.ts';
import { LIGHT } from '@matting/http/answer-shares.ts';
import { requireDeclaredBytes } from '@matting/http/bodies.ts';
import { noteRefusal } from '@matting/http/error-handler.ts';
import { readParts } from '@matting/http/multipart.ts';
import { wantBody } from '@matting/http/unread-bodies.ts';
import { ContractError, ERROR_CATALOGUE, type ErrorCode } from '@matting/proto/contract/errors.ts';
import {
  FINISHING_FIELDS,
  type FinishingField,
  fieldKind,
  rowOf,
} from '@matting/proto/contract/finishing/table.ts';
import { FORMAT_NAMES, OUTPUT_FORMATS } from '@matting/proto/contract/formats.ts';
import { REQUEST_BODY_BYTES_MAX } from '@matting/proto/contract/limits.ts';
import type { FastifyInstance, FastifyReply } from 'fastify';
import type { VNode } from 'preact';
import { callBlocks } from '../documents/call-blocks.ts';
import type { AccountJobs } from '../jobs/account-jobs.ts';
import { sendResultOf } from '../jobs/job-files.ts';
import { findJob, type JobRequest, renderJob } from '../jobs/job-pages.ts';
import { JOBS_PATH } from '../jobs/thumbnails.ts';
import { renderPage } from '../page/account-frame.ts';
import { ACCOUNT_PATH, type Child, html } from '../page/html.ts';
import { dropWords, SAMPLES, sampleHref } from '../page/stage.ts';
import * as ui from '../page/ui.ts';
import { readGuarded } from '../session/guard.ts';
import { createSecret } from '../session/secret.ts';
import { PageError, type Visit, visitOf } from '../session/visit.ts';
import { fill, type Words } from '../words/words.ts';
import { isOpen, outcome, workingStage } from './outcome.ts';
import {
  AllowanceError,
  type Options,
  optionsOfQuery,
  PLAYGROUND_OPTIONS,
  type PlaygroundAllowance,
  PlaygroundForm,
  type UsePlayground,
} from './use-playground.ts';

const REFRESH_S = 2;
const PAGE = `${ACCOUNT_PATH}/playground`;
const USE = { config: { permission: 'playground.use' } } as const;
const SEND = { config: { permission: 'playground.use', body: 'multipart' } } as const;
const CORRECT = { config: { permission: 'jobs.correct', body: 'multipart' } } as const;

type Services = Parameters<typeof sendResultOf>[2] & {
  readonly playground: UsePlayground;
  readonly accountJobs: AccountJobs;
  readonly models: CoreServices['models'];
  readonly fleet: Pick<Core['fleet'], 'snapshots'>;
};

export function registerPlaygroundRoutes(
  account: FastifyInstance,
  services: Services,
  baseUrl: string,
): void {
  const { playground, models, fleet } = services;
  const show: Show = async (reply, shown) => {
    const { request } = reply;
    const visit = visitOf(request);
    const { title, lead } = visit.words.playground;
    const { status = 200, options = optionsOfQuery(request.query) } = shown;
    if (!playground.isOn) {
      const main = html`<div class="panel">${ui.emptyState(visit.words.playground.off)}</div>`;
      return renderPage(reply, { title, lead, active: 'playground', status, main });
    }
    const offered = { models: models.list().models, accept: acceptOf(fleet.snapshots()) };
    const allowance = await playground.allowance(visit.accountId);
    const main = html`<div>
      <div class="playground">
        <div id="outcome" aria-live="polite">${outcome(visit, shown.job, { baseUrl, options })}</div>
        <div id="try">${form({ visit, allowance, options, offered, refusal: shown.refusal })}</div>
      </div>
      ${theCall(visit.words, baseUrl, options)}
      <template id="working">${workingStage(visit.words, 'queued')}</template>
    </div>`;
    const scripts = ['compare.js', 'paint.js', 'correct.js', 'playground.js'];
    return renderPage(reply, { title, lead, active: 'playground', status, scripts, main });
  };
  const find = async (request: JobRequest): Promise<Job> => {
    const job = await playground.find(visitOf(request).accountId, request.params.jobId);
    if (job === undefined) throw new PageError('notFound');
    noteJob(request, job.id);
    return job;
  };
  account.get('/playground', USE, (_request, reply) => show(reply, {}));
  account.post('/playground', SEND, (_request, reply) => send(reply, playground, show));
  account.post('/playground/:jobId/corrections', SEND, (request: JobRequest, reply) =>
    send(reply, playground, show, { find: () => find(request), path: PAGE }),
  );
  account.get('/playground/:jobId', USE, async (request: JobRequest, reply) => {
    const job = await find(request);
    if (isOpen(job)) reply.header('refresh', REFRESH_S);
    return show(reply, { job });
  });
  const result = { config: { ...USE.config, weight: LIGHT } };
  account.get('/playground/:jobId/result', result, async (request: JobRequest, reply) =>
    sendResultOf(reply, await find(request), services),
  );
  registerJobCorrections(account, services, baseUrl);
}

function registerJobCorrections(
  account: FastifyInstance,
  { playground, accountJobs }: Pick<Services, 'playground' | 'accountJobs'>,
  baseUrl: string,
): void {
  account.post('/jobs/:jobId/corrections', CORRECT, (request: JobRequest, reply) => {
    const find = () => findJob(request, accountJobs);
    const show: Show = async (_reply, { refusal, status = 200 }) => {
      const { words } = visitOf(request);
      const notice = refusedCorrection(words, refusal);
      return renderJob(reply, await find(), { accountJobs, baseUrl }, { notice, status });
    };
    return send(reply, playground, show, { find: async () => (await find()).job, path: JOBS_PATH });
  });
}

function refusedCorrection({ painter, playground }: Words, refusal?: Refusal): VNode {
  if (refusal?.kind === 'uncorrectable') return ui.notice('warning', painter.over);
  if (refusal?.kind === 'busy') return ui.notice('warning', painter.busy);
  return ui.notice('bad', playground.invalid.other);
}

type Refusal =
  | { readonly kind: 'allowance-used' | 'busy' | 'uncorrectable' }
  | {
      readonly kind: 'invalid';
      readonly code: ErrorCode;
      readonly field: string | undefined;
    };

interface Shown {
  readonly job?: Job;
  readonly options?: Options;
  readonly refusal?: Refusal;
  readonly status?: number;
}

type Show = (reply: FastifyReply, shown: Shown) => Promise<FastifyReply>;

/**
 * Redirects to the job's page. A refusal shows the form again, without its files.
 * @param corrected finds the job to correct, after the token was checked, and the path of the
 * correction's page; absent: the form brings a picture
 */
async function send(
  reply: FastifyReply,
  playground: UsePlayground,
  show: Show,
  corrected?: { readonly find: () => Promise<Job>; readonly path: string },
) {
  const { request } = reply;
  const { path = PAGE } = corrected ?? {};
  if (path === PAGE && !playground.isOn) throw new PageError('notFound');
  const boundary = requireBoundary(request.raw);
  let sent: PlaygroundForm | undefined;
  const isCorrection = corrected !== undefined;
  const read: Parameters<UsePlayground['submit']>[1] = (uploads, onOnce) =>
    readGuarded(request, async requireFormToken => {
      requireDeclaredBytes(request.raw, REQUEST_BODY_BYTES_MAX);
      sent = new PlaygroundForm(uploads, requireFormToken, { isCorrection, onOnce });
      wantBody(request, reply);
      const form = { boundary, room: uploads.texts };
      await readParts(request.raw, form, sent, { bytesMax: REQUEST_BODY_BYTES_MAX });
      return sent.finish();
    });
  try {
    const { accountId } = visitOf(request);
    const job = await (corrected === undefined
      ? playground.submit(accountId, read)
      : playground.correct(accountId, corrected.find, read));
    noteJob(request, job.id);
    const options = isCorrection ? optionsOfQuery(request.query) : sent?.options;
    const query = new URLSearchParams([...(options ?? [])]).toString();
    return reply.redirect(`${path}/${job.id}${query === '' ? '' : `?${query}`}`, 303);
  } catch (error) {
    const refused = playgroundRefusalOf(error);
    if (refused === undefined) throw error;
    if (error instanceof ContractError) noteRefusal(error, request);
    if (refused.retryAfterS !== undefined) reply.header('retry-after', refused.retryAfterS);
    const options = isCorrection ? optionsOfQuery(request.query) : sent?.options;
    const job = corrected && { job: await corrected.find() };
    return await show(reply, { ...refused, ...job, options: options ?? new Map() });
  }
}

/** @throws PageError badForm: not a form with files, or too large */
function requireBoundary(request: IncomingMessage): string {
  const body = bodyFormOf(request);
  const isCoded = request.headers['content-encoding'] !== undefined;
  if (body?.kind !== 'multipart' || isCoded) throw new PageError('badForm');
  return body.boundary;
}

const UNCORRECTABLE: readonly ErrorCode[] = [
  'JOB_NOT_CORRECTABLE',
  'CORRECTIONS_EXHAUSTED',
  'RESULT_EXPIRED',
];

/** Undefined: the error is not a refusal. */
function playgroundRefusalOf(
  error: unknown,
): (Shown & { readonly retryAfterS?: number | undefined }) | undefined {
  if (error instanceof AllowanceError) {
    return { refusal: { kind: 'allowance-used' }, status: 429 };
  }
  if (!(error instanceof ContractError)) return undefined;
  if (error.code === 'SERVICE_UNAVAILABLE' || error.code === 'RATE_LIMITED') {
    const { retryAfterS, spec } = error;
    return { refusal: { kind: 'busy' }, status: spec.http, retryAfterS };
  }
  if (error.spec.http >= 500) return undefined;
  if (error.code === 'JOB_NOT_FOUND') throw new PageError('notFound', { cause: error });
  if (UNCORRECTABLE.includes(error.code)) {
    return { refusal: { kind: 'uncorrectable' }, status: error.spec.http };
  }
  const [field] = error.fieldErrors;
  return { refusal: { kind: 'invalid', code: error.code, field: field?.field }, status: 422 };
}

function refusalNotice(visit: Visit, allowance: PlaygroundAllowance, refusal?: Refusal): Child {
  const { words, formats } = visit;
  const text = words.playground;
  const usedUp = () =>
    ui.notice(
      'warning',
      ui.phrase(text.usedUp, {
        count: formats.credits(allowance.imagesMax),
        time: ui.time(allowance.resetsAtMs, formats.dateTime),
      }),
    );
  switch (refusal?.kind) {
    case undefined:
      return allowance.left > 0 ? null : usedUp();
    case 'allowance-used':
      return usedUp();
    case 'busy':
      return ui.notice('warning', text.busy);
    case 'uncorrectable':
      return ui.notice('warning', words.painter.over);
    case 'invalid':
      return invalidField(refusal) === 'other'
        ? ui.notice('bad', text.invalid.other)
        : ui.notice('bad', words.common.checkFields);
  }
}

type InvalidField = keyof Words['playground']['invalid'];

const INVALID_FIELDS = new Map<string, InvalidField>([
  ...PLAYGROUND_OPTIONS.map(name => [name, name] as const),
  ['image_file', 'image_file'],
  ['image_url', 'image_file'],
  ['image_base64', 'image_file'],
  ['background_file', 'background_file'],
  ['background_url', 'background_file'],
]);

function invalidField(refusal: Refusal | undefined): InvalidField | undefined {
  if (refusal?.kind !== 'invalid') return undefined;
  const named = INVALID_FIELDS.get(refusal.field ?? '');
  return named ?? (ERROR_CATALOGUE[refusal.code].about === 'picture' ? 'image_file' : 'other');
}

type OfferedModel = ReturnType<CoreServices['models']['list']>['models'][number];

interface FormProps {
  readonly visit: Visit;
  readonly allowance: PlaygroundAllowance;
  readonly options: Options;
  readonly offered: { readonly models: readonly OfferedModel[]; readonly accept: string };
  readonly refusal: Refusal | undefined;
}

function form(props: FormProps): VNode {
  const { visit, allowance, options, offered, refusal } = props;
  const { words, csrf } = visit;
  const text = words.playground;
  const wrong = invalidField(refusal);
  const notice = refusalNotice(visit, allowance, refusal);
  const errorOf = (field: InvalidField) => (wrong === field ? text.invalid[field] : undefined);
  const seconds = offered.models.flatMap(({ name, default: isDefault, seconds_p50: p50 }) =>
    p50 === null ? [] : [[name, p50] as const, ...(isDefault ? [['', p50] as const] : [])],
  );
  // The token comes first, since the service checks it before it takes a file. `once` is random:
  // the same form sent twice makes one picture.
  return html`<form method="post" action="/account/playground" enctype="multipart/form-data"
      id="playground-form" data-seconds=${JSON.stringify(Object.fromEntries(seconds))}
      data-failed=${text.failedToSend}>
    <input type="hidden" name="csrf" value=${csrf} />
    <input type="hidden" name="once" value=${createSecret()} />
    <div class="picture-side">
      ${refusal ? html`<div data-refusal>${notice}</div>` : notice}
      ${dropField(words, offered.accept, errorOf('image_file'))}
      ${sendRow(visit, allowance)}
      ${samples(words, allowance.left > 0)}
    </div>
    <div class="panel padded form options">
      <h2>${text.options}</h2>
      ${modelField(visit, offered.models, options, errorOf('model'))}
      ${optionFields(words, options, errorOf, wrong)}
    </div>
  </form>`;
}

/** The label is the drop zone. A click on it opens the hidden input's dialog. */
function dropField(words: Words, accept: string, error: string | undefined): VNode {
  const text = words.playground;
  const described = error === undefined ? 'image_file-hint' : 'image_file-hint image_file-error';
  return html`<div class=${`drop field${error === undefined ? '' : ' wrong'}`} data-drop=${text.chosen}
      data-wrong=${text.invalid.image_file} data-box=${text.boxSurface}
      data-other=${text.dropOther} data-hint=${text.boxHint}>
    <label for="image_file">${dropWords(text.drop, text.dropHint)}</label>
    <input type="file" id="image_file" name="image_file" accept=${accept} required
      aria-describedby=${described} aria-invalid=${error === undefined ? undefined : 'true'} />
    <span class="hint" id="image_file-hint">${text.pictureHint}</span>
    ${error === undefined ? null : html`<span class="error" id="image_file-error">${error}</span>`}
  </div>`;
}

function sendRow({ words, formats }: Visit, { left, resetsAtMs }: PlaygroundAllowance): VNode {
  const text = words.playground;
  const count = fill(left === 1 ? text.left.one : text.left.other, {
    count: formats.credits(left),
  });
  const note = ui.phrase(text.leftNote, { time: ui.time(resetsAtMs, formats.dateTime) });
  return html`<div class="actions send-row">
    ${ui.button({ label: text.send, disabled: left === 0 })}
    <p class="hint"><b>${count}</b> ${note}</p>
  </div>`;
}

function samples({ playground: text }: Words, isOn: boolean): VNode {
  return html`<div class="samples"><p class="hint" id="samples-head">${text.samplesLead}</p>
    <div role="group" aria-labelledby="samples-head">${SAMPLES.map(
      sample => html`<button type="submit" class="sample" name="sample" value=${sample}
        formnovalidate disabled=${!isOn}><img src=${sampleHref(sample)} alt=${text.samples[sample]}
        width="96" height="72" /></button>`,
    )}</div>
  </div>`;
}

function modelField(
  { words: { playground: text }, formats }: Visit,
  offered: readonly OfferedModel[],
  values: Options,
  error: string | undefined,
): Child {
  if (offered.every(model => model.default)) return null;
  const hintOf = ({ good_for: goodFor, seconds_p50: seconds }: OfferedModel) => {
    const time = seconds === null ? undefined : formats.duration(1000 * seconds);
    return [goodFor, time && fill(text.modelTook, { time })].filter(Boolean).join(' · ');
  };
  const options = offered.map(model => ({
    value: model.name,
    label: model.name,
    hint: hintOf(model),
  }));
  const taken = offered.find(model => model.default)?.name;
  const own = { value: '', label: text.anyModel, hint: taken };
  const value = offered.find(({ name }) => name === values.get('model'))?.name ?? '';
  return ui.radioGroup({
    name: 'model',
    label: text.model,
    value,
    error,
    options: [own, ...options],
  });
}

function optionFields(
  words: Words,
  values: ReadonlyMap<string, string>,
  error: (field: InvalidField) => string | undefined,
  wrong: InvalidField | undefined,
): VNode {
  const texts = words.playground;
  const { text, box, control } = controlsOf(texts, values, error);
  const hasMore =
    MORE.some(name => values.has(name) || wrong === name) || wrong === 'background_file';
  return html`<div class="row">
      ${ui.selectField({
        name: 'output_format',
        label: texts.format,
        value: values.get('output_format') ?? 'png',
        options: OUTPUT_FORMATS.filter(format => format !== 'zip').map(format => ({
          value: format,
          label: FORMAT_NAMES[format],
        })),
        error: error('output_format'),
      })}
      ${control('background', texts.backgroundHint)}
    </div>
    ${text('subject_box', texts.subjectBox, { hint: texts.subjectBoxHint, placeholder: '0% 0% 50% 100%' })}
    ${control('crop')}
    <details open=${hasMore || undefined}>
      <summary>${texts.more}</summary>
      <div class="stack">
        ${LAYOUT.map(names => {
          const [only, ...more] = names.map(name => control(name));
          return more.length === 0 ? only : html`<div class="row">${only}${more}</div>`;
        })}
        <div class="row">
          ${ui.selectField({
            name: 'channels',
            label: texts.fields.channels,
            value: values.get('channels') ?? '',
            options: [
              { value: '', label: texts.rgba },
              { value: 'alpha', label: texts.alpha },
            ],
            error: error('channels'),
          })}
          ${ui.fileField({
            name: 'background_file',
            label: texts.backgroundFile,
            error: error('background_file'),
            accept: ACCEPT,
          })}
        </div>
        ${box('no_subject', texts.noSubject, 'fail')}
      </div>
    </details>`;
}

type PageField = Exclude<FinishingField, 'background_url'>;

const ROWS: readonly (readonly PageField[])[] = [
  ['crop_margin', 'scale', 'position'],
  ['output_width', 'output_height', 'size_max_megapixels'],
  ['aspect_ratio', 'quality', 'roi'],
  ['enlarge'],
  ['shadow'],
  ['shadow_opacity', 'shadow_blur', 'shadow_offset'],
];
const PLACED: readonly string[] = [
  'background',
  'background_url',
  'channels',
  'crop',
  ...ROWS.flat(),
];
const OTHERS = FINISHING_FIELDS.filter((field): field is PageField => !PLACED.includes(field));
const LAYOUT = [...ROWS, ...OTHERS.map(field => [field])];

function controlsOf(
  { fields }: Words['playground'],
  values: ReadonlyMap<string, string>,
  error: (field: InvalidField) => string | undefined,
) {
  const text = (name: InvalidField, label: string, more: object = {}) =>
    ui.textField({ name, label, value: values.get(name) ?? '', error: error(name), ...more });
  const box = (name: InvalidField, label: string, value: string) =>
    ui.checkbox({ name, label, value, checked: values.get(name) === value, error: error(name) });
  const control = (name: PageField, hint?: string): VNode => {
    const { boolean, choice = [], number, placeholder, schema } = rowOf(name);
    const value = boolean ? `${!schema.default}` : choice.length === 1 ? choice[0] : undefined;
    if (value !== undefined) return box(name, fields[name], value);
    const mode = number?.form === 'whole' ? 'numeric' : 'decimal';
    const inputmode = fieldKind(name) === 'number' ? mode : undefined;
    return text(name, fields[name], { hint, inputmode, placeholder });
  };
  return { text, box, control };
}

const MORE = PLAYGROUND_OPTIONS.filter(
  name => !['model', 'output_format', 'background', 'subject_box', 'crop'].includes(name),
);

const ACCEPT = 'image/jpeg,image/png,image/webp,image/avif,image/jxl,.jxl';

/** Unless a form accepts HEIC, an iPhone sends its photos as JPEG. */
function acceptOf(nodes: ReturnType<Core['fleet']['snapshots']>): string {
  const readsHeic = nodes.some(({ inputFormats }) => inputFormats.has('heic'));
  return readsHeic ? `${ACCEPT},image/heic,image/heif,.heic,.heif` : ACCEPT;
}

function theCall(words: Words, baseUrl: string, options: Options): VNode {
  const text = words.playground;
  return html`<section class="section" id="call">
    <h2>${text.call}</h2>
    <p class="lead">${text.callHint}</p>
    ${callBlocks({ baseUrl, options }, words.common, text.call)}
  </section>`;
}
