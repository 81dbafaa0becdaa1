/** Notifications of jobs' ends, and sending one again. */
import type { FastifyInstance, FastifyReply } from 'fastify';
import type { VNode } from 'preact';
import type { OperatorServices } from '../../core/http/app-services.ts';
import {
  NOTIFICATION_STATUSES,
  notificationCursor,
  type OperatorNotification,
  type ResendOutcome,
} from '../../core/webhooks/operate-webhooks.ts';
import {
  badge,
  button,
  dataTable,
  emptyState,
  filterForm,
  html,
  notice,
  pager,
  postForm,
  selectField,
  type Tone,
  textField,
  time,
  withQuery,
} from '../page/html.ts';
import {
  type OperatorVisit,
  operatorVisitOf,
  PAGES_PATH,
  queryChoice,
  queryValue,
  renderOperatorPage,
} from './operator-frame.ts';

const NOTIFICATIONS_PATH = `${PAGES_PATH}/notifications`;
const PAGE_ROWS = 50;
const TONES: Readonly<Record<OperatorNotification['status'], Tone>> = {
  pending: 'neutral',
  delivered: 'good',
  failed: 'bad',
};

export function registerNotificationPages(
  pages: FastifyInstance,
  services: OperatorServices,
): void {
  pages.get(NOTIFICATIONS_PATH, (_request, reply) => renderList(reply, services));
  pages.post<{ Params: { job: string } }>(
    `${NOTIFICATIONS_PATH}/:job/retry`,
    async (request, reply) => {
      const { job } = request.params;
      const outcome = await services.operateWebhooks.retry(job);
      if (outcome !== 'retried') return renderList(reply, services, outcome);
      request.log.info({ command: 'webhooks retry', jobId: job }, 'operator');
      return reply.redirect(withQuery(NOTIFICATIONS_PATH, { job, said: 'resent' }), 303);
    },
  );
}

async function renderList(
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
    main: html`${whyNot === undefined ? null : notice('bad', texts.whyNot[whyNot])}
    ${filterForm(
      NOTIFICATIONS_PATH,
      selectField({
        name: 'status',
        label: texts.status,
        options: [
          { value: '', label: own.all },
          ...NOTIFICATION_STATUSES.map(value => ({ value, label: texts.statuses[value] })),
        ],
        value: status ?? '',
      }),
      textField({ name: 'job', label: texts.jobField, value: job }),
      button({ label: own.filter, kind: 'secondary' }),
    )}
    ${notificationTable(found, visit)}
    ${pager(words.common, NOTIFICATIONS_PATH, { after, next }, { status, job })}`,
  });
}

function notificationTable(
  found: readonly OperatorNotification[],
  { own, formats, csrf }: OperatorVisit,
): VNode {
  const words = own.notifications;
  const instant = (iso: string | null) => time(iso, formats.exactTime, '–');
  return dataTable({
    caption: words.caption,
    columns: [
      words.jobField,
      words.status,
      { label: words.receiver, cut: true },
      { label: words.attempts, align: 'end' },
      words.last,
      words.lastAt,
      words.nextAt,
      { label: own.actions, silent: true, align: 'end' },
    ],
    rows: found.map(one => [
      subjectOf(one),
      badge(words.statuses[one.status], TONES[one.status]),
      one.receiver,
      formats.credits(one.attempts),
      one.last_status_code ?? (one.attempts === 0 ? '–' : words.noAnswer),
      instant(one.last_attempt_at),
      instant(one.next_attempt_at),
      one.status === 'delivered'
        ? null
        : postForm(
            {
              action: `${NOTIFICATIONS_PATH}/${one.job_id}/retry`,
              csrf,
              class: 'inline',
            },
            button({
              label: words.resend,
              kind: 'secondary',
              describe: `${words.resend}: ${one.job_id}`,
            }),
          ),
    ]),
    empty: emptyState({ title: words.empty, text: words.emptyText }),
  });
}

/** The job that ended; or the account's event, which has an id of its own and no page. */
function subjectOf({ job_id: id, event }: OperatorNotification): VNode {
  if (event === null) return html`<a href=${`${PAGES_PATH}/jobs/${id}`}><code>${id}</code></a>`;
  return html`<span><code>${event}</code> <code>${id}</code></span>`;
}
