/**
 * The pages show what waits for a node, and whose it is; nodes, and draining them; jobs of all
 * accounts, and ending the lease of one; notifications, and sending one again.
 */

import {
  ENDED_WITHIN_HOURS_DEFAULT,
  ENDED_WITHIN_HOURS_MAX,
  JOB_GROUPS,
  notificationCursor,
  type OperatorJob,
  type OperatorNode,
  type OperatorNotification,
  QUEUED_ACCOUNTS_MAX,
  type QueueView,
  type ResendOutcome,
} from '@matting/core/operator/operator.ts';
import type { OperatorServices } from '@matting/core/package.ts';
import { NOTIFICATION_STATUSES } from '@matting/core/webhooks/webhooks.ts';
import type { FastifyInstance, FastifyReply } from 'fastify';
import type { VNode } from 'preact';
import { JOB_TONES } from '../jobs/job-pages.ts';
import { stageBars } from '../jobs/stage-bars.ts';
import { type Child, html } from '../page/html.ts';
import {
  type AccountNames,
  accountLink,
  OPERATOR_PATH,
  type OperatorVisit,
  operatorVisitOf,
  PAGES_PATH,
  queryChoice,
  queryValue,
  renderOperatorPage,
} from '../page/operator-frame.ts';
import * as ui from '../page/ui.ts';
import { fill } from '../words/words.ts';

const NODES_PATH = `${PAGES_PATH}/nodes`;
const NODE_TONES: Readonly<Record<OperatorNode['state'], ui.Tone>> = {
  live: 'good',
  joining: 'neutral',
  unready: 'warning',
  unreachable: 'bad',
  draining: 'warning',
  gone: 'neutral',
  silent: 'bad',
};

export function registerNodePages(
  pages: FastifyInstance,
  { operateNodes, readQueue }: OperatorServices,
): void {
  pages.get(OPERATOR_PATH, async (_request, reply) => {
    const queue = await readQueue.read();
    const nodes = await operateNodes.list();
    return renderOverview(reply, queue, nodes);
  });
  pages.get(NODES_PATH, async (request, reply) => {
    const nodes = await operateNodes.list();
    const visit = operatorVisitOf(request);
    const { title, lead } = visit.own.nodes;
    const main = nodeTable(nodes, visit);
    return renderOperatorPage(reply, { title, lead, active: 'nodes', main });
  });
  for (const command of ['drain', 'undrain'] as const) {
    pages.post<{ Params: { node: string } }>(
      `${NODES_PATH}/:node/${command}`,
      async (request, reply) => {
        const changed = await operateNodes.setDraining(request.params.node, command === 'drain');
        request.log.info({ command, nodeId: changed.node_id }, 'operator');
        return reply.redirect(`${NODES_PATH}?said=${command}ing`, 303);
      },
    );
  }
}

function nodeTable(nodes: readonly OperatorNode[], visit: OperatorVisit): VNode {
  const { own, formats } = visit;
  const words = own.nodes;
  return ui.dataTable({
    caption: words.caption,
    columns: [
      words.node,
      own.state,
      words.address,
      words.version,
      words.runsOn,
      words.heartbeat,
      { label: own.actions, silent: true, align: 'end' },
    ],
    rows: nodes.map(node => [
      node.node_id,
      html`${ui.badge(words.states[node.state], NODE_TONES[node.state])}
        ${node.cause && html`<div class="soft">${node.cause}</div>`}`,
      html`<code>${node.address}</code>`,
      node.version,
      node.runs_on ?? '–',
      ui.ago(node.heartbeat_at, formats.exactTime),
      drainForm(node, visit),
    ]),
    empty: ui.emptyState({ title: words.empty, text: words.emptyText }),
  });
}

function drainForm(node: OperatorNode, { own, csrf }: OperatorVisit): VNode | null {
  if (node.state === 'gone') return null;
  const words = own.nodes;
  const command = node.draining ? 'undrain' : 'drain';
  const label = words[command];
  const name = { node: node.node_id };
  const ask = node.draining ? {} : { confirm: fill(words.drainAsk, name) };
  return ui.postForm(
    {
      action: `${NODES_PATH}/${encodeURIComponent(node.node_id)}/${command}`,
      csrf,
      class: 'inline',
    },
    ui.button({ label, kind: 'secondary', describe: `${label} ${node.node_id}`, ...ask }),
  );
}

function renderOverview(reply: FastifyReply, queue: QueueView, nodes: readonly OperatorNode[]) {
  const visit = operatorVisitOf(reply.request);
  const { formats, own } = visit;
  const words = own.overview;
  const live = nodes.filter(({ state }) => state === 'live');
  const note = fill(words.ofMax, {
    share: formats.share(queue.megapixels / queue.megapixelsMax),
    max: formats.credits(queue.megapixelsMax),
  });
  const rows = queue.accounts.map(account => [
    html`<a href=${`${PAGES_PATH}/accounts/${account.accountId}`}>${account.name}</a>`,
    formats.credits(account.jobs),
    formats.credits(account.megapixels),
    formats.share(account.megapixels / Math.max(queue.megapixels, 1)),
  ]);
  return renderOperatorPage(reply, {
    title: words.title,
    lead: words.lead,
    active: 'overview',
    main: html`${ui.figures([
      { label: words.jobs, value: formats.credits(queue.jobs) },
      { label: words.megapixels, value: formats.credits(queue.megapixels), note },
      {
        label: words.oldest,
        value: queue.jobs === 0 ? '–' : formats.duration(queue.oldestAgeMs),
      },
      {
        label: words.nodes,
        value: formats.credits(live.length),
        note: fill(words.nodesOf, { count: formats.credits(nodes.length) }),
      },
    ])}
    ${ui.section(
      {
        title: words.queue,
        lead:
          queue.accountCount > QUEUED_ACCOUNTS_MAX
            ? fill(words.queueMore, { count: formats.credits(queue.accountCount) })
            : undefined,
      },
      ui.dataTable({
        caption: words.queueCaption,
        columns: [own.account, ui.end(words.jobs), ui.end(words.megapixels), ui.end(words.share)],
        rows,
        empty: ui.emptyState({ title: words.queueEmpty, text: words.queueEmptyText }),
      }),
    )}
    ${ui.section({ title: words.fleet }, nodeTable(nodes, visit))}`,
  });
}

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
    const said = retried.lease_ended ? 'leaseEnded' : 'notLeased';
    return reply.redirect(`${JOBS_PATH}/${retried.job_id}?said=${said}`, 303);
  });
}

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
  const { common, jobs: said } = visit.words;
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
      [words.mode, job.playground ? said.playground : said.modes[job.mode]],
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
const NOTIFICATION_TONES: Readonly<Record<OperatorNotification['status'], ui.Tone>> = {
  pending: 'neutral',
  delivered: 'good',
  failed: 'bad',
};

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
  whyNot?: Exclude<ResendOutcome, 'retried'>,
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
    ${notificationTable(found, visit)}
    ${ui.pager(words.common, NOTIFICATIONS_PATH, { after, next }, { status, job })}`,
  });
}

function notificationTable(found: readonly OperatorNotification[], visit: OperatorVisit): VNode {
  const { own, formats, csrf } = visit;
  const words = own.notifications;
  return ui.dataTable({
    caption: words.caption,
    columns: [
      words.jobField,
      words.status,
      { label: words.receiver, cut: true },
      ui.end(words.attempts),
      words.last,
      words.nextAt,
      { label: own.actions, silent: true, align: 'end' },
    ],
    rows: found.map(one => [
      subjectOf(one),
      ui.badge(words.statuses[one.status], NOTIFICATION_TONES[one.status]),
      one.receiver,
      formats.credits(one.attempts),
      lastAnswer(one, visit),
      ui.time(one.next_attempt_at, formats.dateTime, '–'),
      one.status === 'delivered'
        ? null
        : ui.postForm(
            {
              action: `${NOTIFICATIONS_PATH}/${one.job_id}/retry`,
              csrf,
              class: 'inline',
            },
            ui.button({
              label: words.resend,
              kind: 'secondary',
              describe: `${words.resend}: ${one.job_id}`,
            }),
          ),
    ]),
    empty: ui.emptyState({ title: words.empty, text: words.emptyText }),
  });
}

/** Says how the last attempt ended, and when. */
function lastAnswer(
  { last_status_code: status, last_failure: failure, last_attempt_at: at }: OperatorNotification,
  { own, words, formats }: OperatorVisit,
): Child {
  if (at === null) return '–';
  const why = failure === null ? own.notifications.noAnswer : words.jobs.failures[failure];
  return html`${status === null ? why : `HTTP ${status}`}
    <div class="soft">${ui.ago(at, formats.exactTime)}</div>`;
}

/** Names the final job, or the account's event, which has an id of its own and no page. */
function subjectOf({ job_id: id, event }: OperatorNotification): VNode {
  const href = `${PAGES_PATH}/jobs/${id}`;
  if (event === null) {
    return html`<a href=${href} title=${id}><code>${id.slice(0, 8)}</code></a>`;
  }
  return html`<span>${event} ${ui.shortId(id)}</span>`;
}
