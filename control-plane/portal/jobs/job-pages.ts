import type { Job } from '@matting/core/jobs/job.ts';
import { fundingKindOf } from '@matting/core/jobs/job-funding.ts';
import type { JobOutcome } from '@matting/core/jobs/job-outcome.ts';
import { noteJob } from '@matting/http/answer-log.ts';
import { LIGHT } from '@matting/http/answer-shares.ts';
import { warningsOf } from '@matting/proto/contract/finishing.ts';
import { type JobStatus, publicState } from '@matting/queue/job.ts';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { VNode } from 'preact';
import { renderPage } from '../page/account-frame.ts';
import { ACCOUNT_PATH, type Child, DOCS_PATH, html } from '../page/html.ts';
import { resultStage } from '../page/stage.ts';
import * as ui from '../page/ui.ts';
import { may } from '../session/roles.ts';
import { formOf, PageError, queryOf, type Visit, visitOf } from '../session/visit.ts';
import { type Formats, fill, type Words } from '../words/words.ts';
import {
  ACCOUNT_JOB_GROUPS,
  type AccountJob,
  type AccountJobQuestion,
  type AccountJobs,
  DAYS_LISTED,
  type JobKey,
  type NotificationView,
} from './account-jobs.ts';
import { correcting, correctionCall, originalOf } from './correcting.ts';
import { sendOriginalOf, sendResultOf } from './job-files.ts';
import { pagesOfList, sendResultsZip, type ZipServices } from './results-zip.ts';
import { stageBars } from './stage-bars.ts';
import { hasThumbnail, JOBS_PATH as PATH, sendThumbnailOf, thumbnail } from './thumbnails.ts';
import { WEBHOOKS_PATH } from './webhook-pages.ts';

const READ = { config: { permission: 'jobs.read' } } as const;
const READ_RESULTS = { config: { permission: 'results.read' } } as const;
const READ_RESULT = { config: { ...READ_RESULTS.config, weight: LIGHT } } as const;
const REFRESH_S = 2;

export type JobRequest = FastifyRequest<{ Params: { jobId: string } }>;

export function registerJobsRoutes(
  account: FastifyInstance,
  services: ZipServices,
  baseUrl: string,
): void {
  const { accountJobs } = services;
  const find = (request: JobRequest) => findJob(request, accountJobs);
  registerChecked(account, accountJobs);
  account.get('/jobs', READ, (_request, reply) => renderList(reply, accountJobs));
  account.get('/jobs/results.zip', READ_RESULTS, (request, reply) =>
    sendResultsZip(
      reply,
      pagesOfList(visitOf(request).accountId, questionOf(request), accountJobs),
      services,
    ),
  );
  account.get('/jobs/:jobId', READ, async (request: JobRequest, reply) =>
    renderJob(reply, await find(request), { accountJobs, baseUrl }),
  );
  account.get('/jobs/:jobId/result', READ_RESULT, async (request: JobRequest, reply) =>
    sendResultOf(reply, (await find(request)).job, services),
  );
  account.get('/jobs/:jobId/original', READ_RESULT, async (request: JobRequest, reply) => {
    const { job } = await find(request);
    const { first = job.id } = job.correction ?? {};
    const family = await accountJobs.find(job.accountId, first);
    return sendOriginalOf(reply, family?.job, services);
  });
  account.get('/jobs/:jobId/thumbnail', READ_RESULT, async (request: JobRequest, reply) =>
    sendThumbnailOf(reply, (await find(request)).job, services),
  );
  account.post(
    '/jobs/:jobId/resend',
    { config: { permission: 'jobs.resend' } },
    async (request: JobRequest, reply) => {
      const { accountId, actor } = visitOf(request);
      const { job } = await find(request);
      const outcome = await accountJobs.resend(accountId, job.id, actor);
      const isOfList = formOf(request).text('from') === 'webhooks';
      const back = isOfList ? WEBHOOKS_PATH : `${PATH}/${job.id}`;
      return reply.redirect(`${back}?said=${outcome}`, 303);
    },
  );
}

function registerChecked(account: FastifyInstance, accountJobs: AccountJobs): void {
  account.post(
    '/jobs/:jobId/looked',
    { config: { permission: 'jobs.correct' } },
    async (request: JobRequest, reply) => {
      const { job } = await findJob(request, accountJobs);
      await accountJobs.noteLooked(job.accountId, job.id);
      return reply.redirect(`${PATH}?state=look&said=looked`, 303);
    },
  );
}

/** @throws PageError notFound: the account has no such job */
export async function findJob(request: JobRequest, accountJobs: AccountJobs): Promise<AccountJob> {
  const found = await accountJobs.find(visitOf(request).accountId, request.params.jobId);
  if (found === undefined) throw new PageError('notFound');
  noteJob(request, found.job.id);
  return found;
}

async function renderList(reply: FastifyReply, accountJobs: AccountJobs) {
  const { request } = reply;
  const visit = visitOf(request);
  const { accountId, words } = visit;
  const question = questionOf(request);
  const { jobs, next } = await accountJobs.list(accountId, question);
  const keys = await accountJobs.keys(accountId);
  const text = words.jobs;
  return renderPage(reply, {
    title: text.title,
    lead: text.lead,
    active: 'jobs',
    notices: text.look.notices,
    actions: zipLink(visit, question, jobs),
    main: html`<div>
      ${groups(visit, question)}
      ${filters(visit, question, keys)}
      ${ui.dataTable({
        caption: text.title,
        columns: jobColumns(visit, { label: text.key, cut: true }),
        rows: jobs.map(job => jobRow(visit, job, keyName(words, keys, job.apiKeyId))),
        empty: ui.emptyState(nothing(visit, question)),
      })}
      ${ui.pager(words.common, PATH, { after: question.after, next }, queryFor(question))}
    </div>`,
  });
}

function zipLink({ words, role }: Visit, question: AccountJobQuestion, jobs: readonly JobStatus[]) {
  const hasResults = jobs.some(job => publicState(job) === 'succeeded');
  if (!hasResults || !may(role, 'results.read')) return null;
  const query = { ...queryFor(question), after: question.after };
  const href = ui.withQuery(`${PATH}/results.zip`, query);
  return ui.linkButton({ href, label: words.jobs.zip.download });
}

/** Says what to do next, unless the filter hides all jobs. */
function nothing({ words, role }: Visit, question: AccountJobQuestion) {
  const { empty, noneYet } = words.jobs;
  if (question.after !== undefined) return words.jobs.emptyPage;
  if (isFiltered(question)) return empty;
  const href = `${ACCOUNT_PATH}/playground`;
  const action = ui.linkButton({ href, label: words.overview.steps.try.action, kind: 'primary' });
  return { title: empty.title, text: noneYet, action: may(role, 'playground.use') ? action : null };
}

/** No reference is longer, however it is encoded (REFERENCE_LENGTH_MAX). */
const SEARCH_LENGTH_MAX = 256;
const KEY_ID = /^[0-9A-Za-z]{12}$/;

function questionOf(request: FastifyRequest): AccountJobQuestion {
  const [state, key, days, after, search] = ['state', 'key', 'days', 'after', 'search'].map(name =>
    queryOf(request, name),
  );
  const named = typeof search === 'string' ? search.trim().normalize('NFC') : '';
  return {
    search: named === '' || named.length > SEARCH_LENGTH_MAX ? undefined : named,
    group: ACCOUNT_JOB_GROUPS.find(group => group === state) ?? 'all',
    apiKeyId: typeof key === 'string' && KEY_ID.test(key) ? key : undefined,
    days: DAYS_LISTED.find(count => String(count) === days) ?? 30,
    after: typeof after === 'string' ? after : undefined,
  };
}

function queryFor({ group, apiKeyId, days, search }: AccountJobQuestion) {
  return {
    search,
    state: group === 'all' ? undefined : group,
    key: apiKeyId,
    days: days === 30 ? undefined : days,
  };
}

function isFiltered(question: AccountJobQuestion): boolean {
  return Object.values(queryFor(question)).some(value => value !== undefined);
}

function groups({ words: { jobs: text } }: Visit, question: AccountJobQuestion): VNode {
  return ui.segments(
    text.state,
    ACCOUNT_JOB_GROUPS.map(group => ({
      label: text.groups[group],
      href: ui.withQuery(PATH, queryFor({ ...question, group, search: undefined })),
      active: question.search === undefined && group === question.group,
    })),
  );
}

function filters({ words }: Visit, question: AccountJobQuestion, keys: readonly JobKey[]): VNode {
  const text = words.jobs;
  return ui.filterForm(
    PATH,
    question.group === 'all'
      ? null
      : html`<input type="hidden" name="state" value=${question.group} />`,
    ui.textField({
      name: 'search',
      label: text.search,
      type: 'search',
      value: question.search,
      maxlength: SEARCH_LENGTH_MAX,
      autocomplete: 'off',
    }),
    ui.selectField({
      name: 'key',
      label: text.key,
      value: question.apiKeyId ?? '',
      options: [
        { value: '', label: text.anyKey },
        ...keys.map(({ id }) => ({ value: id, label: keyName(words, keys, id) })),
      ],
    }),
    ui.selectField({
      name: 'days',
      label: text.ended,
      value: String(question.days),
      options: DAYS_LISTED.map(days => ({
        value: String(days),
        label: fill(days === 1 ? text.days.one : text.days.other, { count: days }),
      })),
    }),
    ui.button({ label: words.common.apply, kind: 'secondary' }),
    isFiltered(question)
      ? ui.linkButton({ href: PATH, label: words.common.clear, kind: 'quiet' })
      : null,
  );
}

type ListedJob = JobStatus & JobOutcome & Pick<Job, 'reference'>;

export function jobColumns({ words: { jobs: text } }: Visit, ...key: ui.Column[]): ui.Column[] {
  return [text.job, text.state, ...key, ui.end(text.took), text.result, text.id];
}

export function jobRow(visit: Visit, job: ListedJob, ...key: string[]): Child[] {
  const { words, formats } = visit;
  return [
    html`<a class="pictured" href=${`${PATH}/${job.id}`}>${thumbnail(visit, job, '')}
      ${named(job.reference, ui.ago(job.createdAtMs, formats.dateTime))}</a>`,
    statusBadge(words, publicState(job)),
    ...key,
    job.finishedAtMs === null ? null : formats.duration(job.finishedAtMs - job.createdAtMs),
    resultText(words, formats, job),
    ui.shortId(job.id),
  ];
}

function named(reference: string | null, time: Child): VNode {
  if (reference === null) return html`<span>${time}</span>`;
  return html`<span><span class="address">${reference}</span><small class="soft">${time}</small></span>`;
}

export function keyName(words: Words, keys: readonly JobKey[], apiKeyId: string): string {
  const key = keys.find(({ id }) => id === apiKeyId);
  if (key?.isPlayground) return words.jobs.playground;
  return key?.name ?? `mk_${apiKeyId}`;
}

export const JOB_TONES: Readonly<Record<ReturnType<typeof publicState>, ui.Tone>> = {
  queued: 'neutral',
  processing: 'accent',
  succeeded: 'good',
  failed: 'bad',
  expired: 'neutral',
};

function statusBadge(words: Words, status: keyof typeof JOB_TONES): VNode {
  return ui.badge(words.jobs.states[status], JOB_TONES[status]);
}

function resultText(words: Words, formats: Formats, { failure, result }: JobOutcome): Child {
  if (failure !== null) return failureText(words, failure.code);
  if (result === null) return null;
  const { width, height, format, bytes, sight } = result;
  const { marks, warned } = words.jobs;
  return html`${width} × ${height} ${format.toUpperCase()}, ${formats.bytes(bytes)}
    ${warningsOf(sight).map(
      one => html`<div title=${warned[one]}>${ui.badge(marks[one], 'warning')}</div>`,
    )}`;
}

export function failureText({ failures }: Words, code: string): string {
  const isKnown = code !== 'other' && Object.hasOwn(failures, code);
  return isKnown ? failures[code as keyof typeof failures] : fill(failures.other, { code });
}

export async function renderJob(
  reply: FastifyReply,
  { job, notification }: AccountJob,
  { accountJobs, baseUrl }: { readonly accountJobs: AccountJobs; readonly baseUrl: string },
  refused?: { readonly notice: VNode; readonly status: number },
): Promise<FastifyReply> {
  const visit = visitOf(reply.request);
  const keys = await accountJobs.keys(visit.accountId);
  const isOpen = ['queued', 'processing'].includes(publicState(job));
  if (isOpen && job.correction !== null) reply.header('refresh', REFRESH_S);
  const { words } = visit;
  const text = words.jobs;
  const { failure } = job;
  const again = failure?.retryable ? text.tryAgain : text.sameAgain;
  return renderPage(reply, {
    title: `${text.one} ${job.reference ?? job.id.slice(0, 8)}`,
    active: 'jobs',
    back: { href: PATH, label: text.title },
    scripts: ['compare.js', 'paint.js', 'correct.js'],
    status: refused?.status ?? 200,
    notices: text.resent,
    main: html`<div data-state=${publicState(job)}>
      ${refused && html`<div data-refusal>${refused.notice}</div>`}
      ${failure === null ? null : ui.notice('bad', `${failureText(words, failure.code)} ${again}`)}
      <div class="job-head">
        ${cutOut(visit, job, baseUrl)}
        ${facts(visit, job, keyName(words, keys, job.apiKeyId))}
      </div>
      ${warnedActions(visit, job)}
      ${result(visit, job, baseUrl)}
      ${correcting(visit, job, {
        pageOf: id => `${PATH}/${id}`,
        call: correctionCall(baseUrl, job.id),
      })}
      ${stages(visit, job)}
      ${notificationOf(visit, job, notification)}
    </div>`,
  });
}

/** The form leads back to the list of warned results. */
function warnedActions({ words, csrf, role }: Visit, job: Job): Child {
  const isOf = publicState(job) === 'succeeded' && may(role, 'jobs.correct');
  if (!isOf || warningsOf(job.result?.sight ?? null).length === 0) return null;
  const { done, correctable } = words.jobs.look;
  const how = html`<a href=${`${DOCS_PATH}/batches-and-corrections#correct-a-result`}>${correctable}</a>`;
  return [
    job.correctable === null ? html`<p class="hint">${how}</p>` : null,
    job.lookUntilMs === null
      ? null
      : ui.postForm(
          { action: `${PATH}/${job.id}/looked`, csrf, class: 'actions' },
          ui.button({ label: done, kind: 'secondary' }),
        ),
  ];
}

type FactsOfJob = ListedJob & Pick<Job, 'correction' | 'kept' | 'model' | 'outputFormat'>;

function facts({ words, formats }: Visit, job: FactsOfJob, key: string): VNode {
  const text = words.jobs;
  const instant = (ms: number | null) => ui.time(ms, formats.exactTime);
  const status = publicState(job);
  const { correction: corrects } = job;
  return ui.definitionList([
    [text.job, ui.copyable(job.id, words.common)],
    [text.reference, job.reference],
    [text.state, statusBadge(words, status)],
    [text.key, key],
    [
      text.corrects,
      corrects && html`<a href=${`${PATH}/${corrects.of}`}>${ui.shortId(corrects.of)}</a>`,
    ],
    [text.mode, job.class === 'playground' ? text.playground : text.modes[job.class]],
    [text.credits, text.charged[chargeOf(job)]],
    [text.created, instant(job.createdAtMs)],
    [text.started, instant(job.startedAtMs)],
    [text.finished, instant(job.finishedAtMs)],
    [text.errorCode, job.failure && errorText(job.failure)],
    [text.models, modelsText(words, job)],
    [text.format, job.outputFormat.toUpperCase()],
    [text.size, sizeOf(words, formats, job)],
    [text.warnings, warningsText(words, job)],
    [text.expires, status === 'succeeded' ? instant(job.expiresAtMs) : null],
  ]);
}

function errorText({ code, detail }: NonNullable<Job['failure']>): VNode {
  return html`<code>${code}</code> <span class="soft" lang="en">${detail}</span>`;
}

function modelsText({ jobs }: Words, { model, result }: Pick<Job, 'model' | 'result'>): Child {
  const roles: Readonly<Record<string, string>> = jobs.roles;
  const ran = result?.models?.map(({ name, role }) => `${name}, ${roles[role] ?? role}`);
  return ran?.map(text => html`<div>${text}</div>`) ?? model;
}

export function warningsText({ jobs }: Words, { result }: JobOutcome): Child {
  const warnings = warningsOf(result?.sight ?? null);
  if (warnings.length === 0) return null;
  return warnings.map(warning => html`<div>${jobs.warned[warning]}</div>`);
}

function chargeOf(job: Pick<Job, 'state' | 'class' | 'correction'>): 'reserved' | 'one' | 'none' {
  if (fundingKindOf(job) !== 'credit') return 'none';
  if (job.state === 'succeeded') return 'one';
  return job.state === 'failed' ? 'none' : 'reserved';
}

export function sizeOf(words: Words, formats: Formats, { result }: JobOutcome): string | null {
  return (
    result &&
    fill(words.playground.size, {
      width: formats.credits(result.width),
      height: formats.credits(result.height),
      bytes: formats.bytes(result.bytes),
    })
  );
}

function cutOut(visit: Visit, job: JobStatus & JobOutcome, baseUrl: string): Child {
  if (!hasThumbnail(visit, job)) return null;
  return html`<div class="cut-out">
    <a href=${resultPath(job)}>${thumbnail(visit, job, visit.words.jobs.result)}</a>
    ${resultActions(visit, job, baseUrl)}</div>`;
}

function resultPath({ id }: JobStatus): string {
  return `${PATH}/${id}/result`;
}

/** The link works only for members of the account, since it needs a session. */
function resultActions({ words }: Visit, job: JobStatus, baseUrl: string): VNode {
  const href = resultPath(job);
  const { copied } = words.common;
  return ui.actions(
    ui.linkButton({ href, label: words.playground.download }),
    ui.copyButton(`${baseUrl}${href}`, { copy: words.jobs.copyLink, copied }),
  );
}

/** The browser loads the whole file only if the person opens it, or if nothing smaller exists. */
function result(visit: Visit, job: FactsOfJob, baseUrl: string): Child {
  const { words, role } = visit;
  const text = words.jobs;
  const status = publicState(job);
  if (status === 'expired') return section(text.result, html`<p class="soft">${text.gone}</p>`);
  if (status !== 'succeeded') return null;
  if (!may(role, 'results.read')) {
    return section(text.result, html`<p class="soft">${text.notForViewers}</p>`);
  }
  const href = resultPath(job);
  if (hasThumbnail(visit, job)) {
    const stage = resultStage(words, href, job.outputFormat, originalOf(visit, job), 'lazy');
    return html`<details class="section whole"><summary>${text.fullSize}</summary>${stage}</details>`;
  }
  return section(
    text.result,
    resultStage(words, href, job.outputFormat, originalOf(visit, job)),
    resultActions(visit, job, baseUrl),
  );
}

function stages(visit: Visit, { timings }: JobOutcome): Child {
  if (timings === null) return null;
  return section(visit.words.jobs.times, stageBars(visit, timings));
}

type NotifiedJob = JobStatus & Pick<Job, 'callback'>;

function notificationOf(visit: Visit, job: NotifiedJob, sent: NotificationView | undefined): Child {
  const { words, formats } = visit;
  const texts = words.jobs;
  if (job.callback === null) return null;
  if (sent === undefined) {
    const text = job.finishedAtMs === null ? texts.notYet : texts.notificationGone;
    return section(texts.notification, html`<p class="soft">${text}</p>`);
  }
  const columns = [texts.attempt, texts.at, texts.answer, ui.end(texts.took)];
  const unknown = sent.attempts - sent.log.length;
  const rows = sent.log.map(({ atMs, statusCode, durationMs }, index) => [
    String(unknown + index + 1),
    ui.time(atMs, formats.exactTime),
    statusCode === null ? texts.noAnswer : `HTTP ${statusCode}`,
    formats.duration(durationMs),
  ]);
  return section(
    texts.notification,
    ui.definitionList([
      [texts.receiver, sent.receiver],
      [texts.state, ui.badge(texts.statuses[sent.status], STATUS_TONES[sent.status])],
      [texts.attempts, formats.credits(sent.attempts)],
      [texts.lastFailure, sent.lastFailure && texts.failures[sent.lastFailure]],
      [texts.nextAttempt, ui.time(sent.nextAttemptAtMs, formats.exactTime)],
    ]),
    rows.length === 0 ? null : ui.dataTable({ caption: texts.attempts, columns, rows }),
    unknown > 0
      ? html`<p class="hint">${fill(texts.unknownAttempts, { count: unknown })}</p>`
      : null,
    resend(visit, job, sent),
  );
}

const STATUS_TONES = { pending: 'warning', delivered: 'good', failed: 'bad' } as const;

export function resend({ words, csrf, role }: Visit, job: JobStatus, sent: NotificationView) {
  const text = words.jobs;
  if (sent.status === 'delivered') return html`<p class="hint">${text.whyNot.delivered}</p>`;
  const isSigned = sent.secretEraseAtMs !== null && sent.secretEraseAtMs > job.readAtMs;
  if (!isSigned) return html`<p class="hint">${text.whyNot.erased}</p>`;
  if (!may(role, 'jobs.resend')) return html`<p class="hint">${text.whyNot.role}</p>`;
  return ui.postForm(
    { action: `${PATH}/${job.id}/resend`, csrf, class: 'actions' },
    ui.button({ label: text.resend, kind: 'secondary' }),
  );
}

function section(title: string, ...children: Child[]): VNode {
  return ui.section({ title }, html`<div class="stack">${children}</div>`);
}
