/** Jobs of all accounts, one of them, and ending the lease of one. */
import type { FastifyInstance, FastifyReply } from 'fastify';
import type { VNode } from 'preact';
import type { OperatorServices } from '../../core/http/app-services.ts';
import {
  ENDED_WITHIN_HOURS_DEFAULT,
  ENDED_WITHIN_HOURS_MAX,
  JOB_GROUPS,
} from '../../core/jobs/operate-jobs.ts';
import type { OperatorJob } from '../../core/jobs/operator-view.ts';
import { JOB_TONES } from '../jobs/job-pages.ts';
import {
  badge,
  button,
  dataTable,
  definitionList,
  emptyState,
  filterForm,
  html,
  pager,
  postForm,
  section,
  selectField,
  textField,
  time,
} from '../page/html.ts';
import { fill } from '../words/words.ts';
import {
  type OperatorVisit,
  operatorVisitOf,
  PAGES_PATH,
  queryChoice,
  queryValue,
  renderOperatorPage,
} from './operator-frame.ts';

const JOBS_PATH = `${PAGES_PATH}/jobs`;
const PAGE_ROWS = 50;

export function registerJobPages(pages: FastifyInstance, services: OperatorServices): void {
  const { operateJobs } = services;
  pages.get(JOBS_PATH, (_request, reply) => renderList(reply, services));
  pages.get<{ Params: { job: string } }>(`${JOBS_PATH}/:job`, async (request, reply) => {
    const job = await operateJobs.show(request.params.job);
    const names = await services.operateAccounts.namesOf([job.account_id]);
    return renderJob(reply, job, names.get(job.account_id) ?? job.account_id);
  });
  pages.post<{ Params: { job: string } }>(`${JOBS_PATH}/:job/retry`, async (request, reply) => {
    const retried = await operateJobs.retry(request.params.job);
    request.log.info({ command: 'retry', jobId: retried.job_id }, 'operator');
    const said = retried.lease_ended ? 'leaseEnded' : 'notLeased';
    return reply.redirect(`${JOBS_PATH}/${retried.job_id}?said=${said}`, 303);
  });
}

async function renderList(reply: FastifyReply, { operateJobs, operateAccounts }: OperatorServices) {
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
    main: html`${filterForm(
      JOBS_PATH,
      selectField({
        name: 'state',
        label: own.state,
        options: JOB_GROUPS.map(value => ({ value, label: own.jobs.groups[value] })),
        value: group,
      }),
      textField({ name: 'account', label: own.accounts.find, value: account }),
      textField({
        name: 'within',
        label: own.jobs.within,
        value: within,
        inputmode: 'numeric',
        error: isHours ? undefined : wrong,
      }),
      button({ label: own.filter, kind: 'secondary' }),
    )}
    ${jobTable(jobs, names, operatorVisitOf(request))}
    ${pager(words.common, JOBS_PATH, { after, next }, { state: group, account, within })}`,
  });
}

function jobTable(
  jobs: readonly OperatorJob[],
  names: ReadonlyMap<string, string>,
  { own, formats }: OperatorVisit,
): VNode {
  const words = own.jobs;
  return dataTable({
    caption: words.caption,
    columns: [
      words.job,
      own.state,
      own.account,
      words.created,
      words.holder,
      { label: words.lost, align: 'end' },
      words.error,
    ],
    rows: jobs.map(job => [
      html`<a href=${`${JOBS_PATH}/${job.job_id}`}><code>${job.job_id}</code></a>`,
      badge(words.states[job.status], JOB_TONES[job.status]),
      html`<a href=${`${PAGES_PATH}/accounts/${job.account_id}`}>${
        names.get(job.account_id) ?? job.account_id
      }</a>`,
      time(job.created_at, formats.exactTime),
      job.lease?.holder ?? '–',
      formats.credits(job.lost_attempts),
      job.error?.code ?? '–',
    ]),
    empty: emptyState({ title: words.empty, text: words.emptyText }),
  });
}

function renderJob(reply: FastifyReply, job: OperatorJob, accountName: string): FastifyReply {
  const { request } = reply;
  const visit = operatorVisitOf(request);
  const { own, formats } = visit;
  const words = own.jobs;
  const isOpen = job.finished_at === null;
  const instant = (iso: string | null) => time(iso, formats.exactTime);
  return renderOperatorPage(reply, {
    title: words.job,
    lead: html`<code>${job.job_id}</code>`,
    back: { href: JOBS_PATH, label: words.title },
    active: 'jobs',
    main: html`${definitionList([
      [own.state, badge(words.states[job.status], JOB_TONES[job.status])],
      [words.error, job.error && html`<code>${job.error.code}</code> ${job.error.detail}`],
      [own.account, html`<a href=${`${PAGES_PATH}/accounts/${job.account_id}`}>${accountName}</a>`],
      [words.key, html`<code>${job.key}</code>`],
      [words.mode, job.mode],
      [words.created, instant(job.created_at)],
      [words.started, instant(job.started_at)],
      [words.ended, instant(job.finished_at)],
      [words.expires, instant(job.expires_at)],
      [words.input, job.input && pictureText(job.input.format, job.input, formats)],
      [words.format, job.output_format],
      [words.result, job.result && pictureText(undefined, job.result, formats)],
      [words.holder, job.lease?.holder],
      [words.lease, job.lease && instant(job.lease.expires_at)],
      [words.fence, String(job.fence)],
      [words.lost, String(job.lost_attempts)],
      [words.takeovers, String(job.takeovers)],
    ])}
    ${job.timings === null ? null : section({ title: words.stages }, stageTable(job, visit))}
    ${
      isOpen
        ? section(
            { title: words.retry, lead: words.retryLead },
            postForm(
              { action: `${JOBS_PATH}/${job.job_id}/retry`, csrf: operatorVisitOf(request).csrf },
              html`<div class="actions">${button({
                label: words.retry,
                kind: 'secondary',
                confirm: words.retryAsk,
              })}</div>`,
            ),
          )
        : null
    }`,
  });
}

function stageTable(job: OperatorJob, { own, formats }: OperatorVisit): VNode {
  const times = Object.entries(job.timings ?? {}).filter(
    (entry): entry is [string, number] => typeof entry[1] === 'number',
  );
  return dataTable({
    caption: own.jobs.stages,
    columns: [own.jobs.stage, { label: own.jobs.time, align: 'end' }],
    rows: times.map(([stage, ms]) => [html`<code>${stage}</code>`, formats.duration(ms)]),
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
