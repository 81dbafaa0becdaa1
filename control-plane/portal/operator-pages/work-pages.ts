import type { OperatorServices } from '@matting/core/http/app-services.ts';
import {
  ENDED_WITHIN_HOURS_DEFAULT,
  ENDED_WITHIN_HOURS_MAX,
  JOB_GROUPS,
} from '@matting/core/operator/operate-jobs.ts';
import { notificationCursor } from '@matting/core/operator/operate-webhooks.ts';
import { NOTIFICATION_STATUSES } from '@matting/core/webhooks/outbox-listing.ts';
import type { FastifyInstance, FastifyReply } from 'fastify';
import type { VNode } from 'preact';
import { JOB_TONES } from '../jobs/job-pages.ts';
import { stageBars } from '../jobs/stage-bars.ts';
import { type OperatorNotification, webhookTable } from '../jobs/webhook-list.ts';
import { html } from '../page/html.ts';
import {
  type AccountNames,
  accountLink,
  type OperatorVisit,
  operatorVisitOf,
  PAGES_PATH,
  queryChoice,
  queryValue,
  renderOperatorPage,
} from '../page/operator-frame.ts';
import * as ui from '../page/ui.ts';
import { fill } from '../words/words.ts';

const JOBS_PATH = `${PAGES_PATH}/jobs`;
const PAGE_ROWS = 50;

export function registerJobPages(pages: FastifyInstance, services: OperatorServices): void {
  const { operateJobs } = services;
  pages.get(JOBS_PATH, (_request, reply) => renderJobs(reply, services));
  pages.get<{ Params: { job: string } }>(`${JOBS_PATH}/:job`, async (request, reply) => {
    const job = await operateJobs.show(request.params.job);
    const names = await services.operateAccounts.namesOf([job.account_id]);
    return renderJob(reply, job, names);
  });
  pages.post<{ Params: { job: string } }>(`${JOBS_PATH}/:job/retry`, async (request, reply) => {
    const retried = await operateJobs.retry(request.params.job);
    request.log.info({ command: 'retry', jobId: retried.job_id }, 'operator');
    const notice = retried.lease_ended ? 'leaseEnded' : 'notLeased';
    return reply.redirect(`${JOBS_PATH}/${retried.job_id}?said=${notice}`, 303);
  });
}

type OperatorJob = Awaited<ReturnType<OperatorServices['operateJobs']['show']>>;

async function renderJobs(reply: FastifyReply, { operateJobs, operateAccounts }: OperatorServices) {
  const { request } = reply;
  const { words, own } = operatorVisitOf(request);
  const group = queryChoice(request, 'state', JOB_GROUPS) ?? 'open';
  const account = queryValue(request, 'account');
  const after = queryValue(request, 'after');
  const within = queryValue(request, 'within') ?? String(ENDED_WITHIN_HOURS_DEFAULT);
  const hours = /^\d{1,5}$/.test(within) ? Number(within) : 0;
  const isHours = hours >= 1 && hours <= ENDED_WITHIN_HOURS_MAX;
  const endedWithinHours = isHours ? hours : ENDED_WITHIN_HOURS_DEFAULT;
  const question = { group, account, endedWithinHours, limit: PAGE_ROWS, after };
  const jobs = await operateJobs.list(question);
  const names = await operateAccounts.namesOf(jobs.map(job => job.account_id));
  const next = jobs.length < PAGE_ROWS ? undefined : jobs.at(-1)?.cursor;
  const wrong = fill(own.jobs.withinWrong, { max: ENDED_WITHIN_HOURS_MAX });
  return renderOperatorPage(reply, {
    title: own.jobs.title,
    lead: own.jobs.lead,
    active: 'jobs',
    main: html`${ui.filterForm(
      JOBS_PATH,
      ui.selectField({
        name: 'state',
        label: own.state,
        options: JOB_GROUPS.map(value => ({ value, label: own.jobs.groups[value] })),
        value: group,
      }),
      ui.textField({ name: 'account', label: own.accounts.find, value: account }),
      ui.textField({
        name: 'within',
        label: own.jobs.within,
        value: within,
        inputmode: 'numeric',
        error: isHours ? undefined : wrong,
      }),
      ui.button({ label: own.filter, kind: 'secondary' }),
    )}
    ${jobTable(jobs, names, operatorVisitOf(request))}
    ${ui.pager(words.common, JOBS_PATH, { after, next }, { state: group, account, within })}`,
  });
}

function jobTable(
  jobs: readonly OperatorJob[],
  names: AccountNames,
  { own, formats }: OperatorVisit,
): VNode {
  const words = own.jobs;
  return ui.dataTable({
    caption: words.caption,
    columns: [
      words.created,
      own.state,
      own.account,
      words.holder,
      ui.end(words.lost),
      words.error,
      words.job,
    ],
    rows: jobs.map(job => [
      html`<a href=${`${JOBS_PATH}/${job.job_id}`}>${ui.ago(job.created_at, formats.exactTime)}</a>`,
      ui.badge(words.states[job.status], JOB_TONES[job.status]),
      accountLink(job.account_id, names),
      job.lease?.holder ?? '–',
      formats.credits(job.lost_attempts),
      job.error?.code ?? '–',
      ui.shortId(job.job_id),
    ]),
    empty: ui.emptyState({ title: words.empty, text: words.emptyText }),
  });
}

function renderJob(reply: FastifyReply, job: OperatorJob, names: AccountNames): FastifyReply {
  const { request } = reply;
  const visit = operatorVisitOf(request);
  const { own, formats } = visit;
  const { common, jobs: text } = visit.words;
  const words = own.jobs;
  const isOpen = job.finished_at === null;
  const instant = (iso: string | null) => ui.time(iso, formats.exactTime);
  return renderOperatorPage(reply, {
    title: words.job,
    lead: ui.copyable(job.job_id, common),
    back: { href: JOBS_PATH, label: words.title },
    active: 'jobs',
    main: html`${ui.definitionList([
      [own.state, ui.badge(words.states[job.status], JOB_TONES[job.status])],
      [words.error, job.error && html`<code>${job.error.code}</code> ${job.error.detail}`],
      [own.account, accountLink(job.account_id, names)],
      [words.key, html`<code>${job.key}</code>`],
      [words.mode, job.playground ? text.playground : text.modes[job.mode]],
      [words.created, instant(job.created_at)],
      [words.started, instant(job.started_at)],
      [words.ended, instant(job.finished_at)],
      [words.expires, instant(job.expires_at)],
      [words.input, job.input && pictureText(job.input.format, job.input, formats)],
      [words.format, job.output_format.toUpperCase()],
      [words.result, job.result && pictureText(undefined, job.result, formats)],
      [words.holder, job.lease?.holder],
      [words.lease, job.lease && instant(job.lease.expires_at)],
      [words.fence, String(job.fence)],
      [words.lost, String(job.lost_attempts)],
      [words.takeovers, String(job.takeovers)],
    ])}
    ${job.timings && ui.section({ title: words.stages }, stageBars(visit, job.timings))}
    ${
      isOpen
        ? ui.section(
            { title: words.retry, lead: words.retryLead },
            ui.postForm(
              { action: `${JOBS_PATH}/${job.job_id}/retry`, csrf: operatorVisitOf(request).csrf },
              ui.actions(
                ui.button({
                  label: words.retry,
                  kind: 'secondary',
                  confirm: words.retryAsk,
                }),
              ),
            ),
          )
        : null
    }`,
  });
}

interface PictureSize {
  readonly bytes: number;
  readonly width: number | null;
  readonly height: number | null;
}

function pictureText(
  format: string | undefined,
  { bytes, width, height }: PictureSize,
  formats: OperatorVisit['formats'],
): string {
  const size = width === null || height === null ? undefined : `${width} × ${height}`;
  return [format, size, formats.bytes(bytes)].filter(part => part !== undefined).join(', ');
}

const NOTIFICATIONS_PATH = `${PAGES_PATH}/notifications`;
export function registerNotificationPages(
  pages: FastifyInstance,
  services: OperatorServices,
): void {
  pages.get(NOTIFICATIONS_PATH, (_request, reply) => renderNotifications(reply, services));
  pages.post<{ Params: { job: string } }>(
    `${NOTIFICATIONS_PATH}/:job/retry`,
    async (request, reply) => {
      const { job } = request.params;
      const outcome = await services.operateWebhooks.retry(job);
      if (outcome !== 'retried') return renderNotifications(reply, services, outcome);
      request.log.info({ command: 'webhooks retry', jobId: job }, 'operator');
      return reply.redirect(ui.withQuery(NOTIFICATIONS_PATH, { job, said: 'resent' }), 303);
    },
  );
}

async function renderNotifications(
  reply: FastifyReply,
  { operateWebhooks }: OperatorServices,
  whyNot?: Exclude<Awaited<ReturnType<OperatorServices['operateWebhooks']['retry']>>, 'retried'>,
): Promise<FastifyReply> {
  const { request } = reply;
  const visit = operatorVisitOf(request);
  const { words, own } = visit;
  const texts = own.notifications;
  const status = queryChoice(request, 'status', NOTIFICATION_STATUSES);
  const job = queryValue(request, 'job');
  const after = queryValue(request, 'after');
  const found = await operateWebhooks.list({ jobId: job, status, limit: PAGE_ROWS, after });
  const last = found.length === PAGE_ROWS ? found.at(-1) : undefined;
  const next = last && notificationCursor(last);
  return renderOperatorPage(reply, {
    title: texts.title,
    lead: texts.lead,
    active: 'notifications',
    status: whyNot === undefined ? 200 : 409,
    main: html`${whyNot === undefined ? null : ui.notice('bad', texts.whyNot[whyNot])}
    ${ui.filterForm(
      NOTIFICATIONS_PATH,
      ui.selectField({
        name: 'status',
        label: texts.status,
        options: [
          { value: '', label: own.all },
          ...NOTIFICATION_STATUSES.map(value => ({ value, label: texts.statuses[value] })),
        ],
        value: status ?? '',
      }),
      ui.textField({ name: 'job', label: texts.jobField, value: job }),
      ui.button({ label: own.filter, kind: 'secondary' }),
    )}
    ${webhookTable(found, visit, {
      pathOf: event => (event === null ? JOBS_PATH : undefined),
      resend: one => resendForm(one, visit),
      empty: ui.emptyState({ title: texts.empty, text: texts.emptyText }),
    })}
    ${ui.pager(words.common, NOTIFICATIONS_PATH, { after, next }, { status, job })}`,
  });
}

function resendForm({ job_id: id, status }: OperatorNotification, visit: OperatorVisit) {
  if (status === 'delivered') return null;
  const { resend } = visit.own.notifications;
  return ui.postForm(
    { action: `${NOTIFICATIONS_PATH}/${id}/retry`, csrf: visit.csrf, class: 'inline' },
    ui.button({ label: resend, kind: 'secondary', describe: `${resend}: ${id}` }),
  );
}
