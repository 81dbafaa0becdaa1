import { NOTIFICATION_STATUSES } from '@matting/core/webhooks/outbox-listing.ts';
import type { FastifyInstance, FastifyReply } from 'fastify';
import { pathOfEvent, renderPage } from '../page/account-frame.ts';
import { ACCOUNT_PATH } from '../page/html.ts';
import * as ui from '../page/ui.ts';
import { may } from '../session/roles.ts';
import { queryOf, visitOf } from '../session/visit.ts';
import type { AccountJobs } from './account-jobs.ts';
import { JOBS_PATH } from './thumbnails.ts';
import { webhookTable } from './webhook-list.ts';

export const WEBHOOKS_PATH = `${ACCOUNT_PATH}/webhooks`;

export function registerWebhooksRoute(account: FastifyInstance, accountJobs: AccountJobs): void {
  account.get('/webhooks', { config: { permission: 'jobs.read' } }, (_request, reply) =>
    renderWebhooks(reply, accountJobs),
  );
}

async function renderWebhooks(reply: FastifyReply, accountJobs: AccountJobs) {
  const visit = visitOf(reply.request);
  const { words, role, csrf, accountId } = visit;
  const { webhooks: text, operator, jobs } = words;
  const [state, after] = ['status', 'after'].map(name => queryOf(reply.request, name));
  const status = NOTIFICATION_STATUSES.find(one => one === state);
  const cursor = typeof after === 'string' ? after : undefined;
  const { found, next } = await accountJobs.webhooks(accountId, { status, after: cursor });
  const link = (value: typeof status, label: string) => ({
    ...{ label, href: ui.withQuery(WEBHOOKS_PATH, { status: value }), active: value === status },
  });
  const { statuses } = operator.notifications;
  return renderPage(reply, {
    title: text.title,
    lead: text.lead,
    active: 'webhooks',
    notices: jobs.resent,
    main: [
      ui.segments(text.title, [
        link(undefined, operator.all),
        ...NOTIFICATION_STATUSES.map(one => link(one, statuses[one])),
      ]),
      webhookTable(found, visit, {
        pathOf: event => (event === null ? JOBS_PATH : pathOfEvent(reply.request, event)),
        resend: one => {
          const isKept = Date.parse(one.secret_erase_at ?? '') > Date.now();
          const isOver = one.status === 'delivered' || one.event !== null || !isKept;
          if (isOver || !may(role, 'jobs.resend')) return null;
          const { resend: label } = operator.notifications;
          const action = `${JOBS_PATH}/${one.job_id}/resend`;
          return ui.postForm(
            { action, csrf, hidden: { from: 'webhooks' }, class: 'inline' },
            ui.button({ label, kind: 'secondary', describe: `${label}: ${one.job_id}` }),
          );
        },
        empty: ui.emptyState({
          title: operator.notifications.empty,
          text: status === undefined ? text.emptyText : undefined,
        }),
      }),
      ui.pager(words.common, WEBHOOKS_PATH, { after: cursor, next }, { status }),
    ],
  });
}
