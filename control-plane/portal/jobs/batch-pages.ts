/** The page of an account's batches, the newest first: how far each is, and its cancellation. */

import { type Batch, batchStatus } from '@matting/core/jobs/batch.ts';
import type { CoreServices } from '@matting/core/package.ts';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { renderPage } from '../page/account-frame.ts';
import { ACCOUNT_PATH, type Child, html } from '../page/html.ts';
import * as ui from '../page/ui.ts';
import { may } from '../session/roles.ts';
import { PageError, type Visit, visitOf } from '../session/visit.ts';
import { fill } from '../words/words.ts';
import { JOBS_PATH } from './thumbnails.ts';

const PATH = `${ACCOUNT_PATH}/batches`;
/** An account can have 50 open ones. */
const BATCHES_SHOWN_MAX = 100;

export function registerBatchesRoute(
  account: FastifyInstance,
  { batches }: Pick<CoreServices, 'batches'>,
): void {
  account.get('/batches', { config: { permission: 'jobs.read' } }, async (request, reply) => {
    const visit = visitOf(request);
    const said = visit.words.batches;
    const listed = await batches.listOf(visit.accountId, BATCHES_SHOWN_MAX);
    return renderPage(reply, {
      title: said.title,
      lead: said.lead,
      active: 'jobs',
      back: { href: JOBS_PATH, label: visit.words.jobs.title },
      said: said.said,
      main: html`<div>
        ${ui.dataTable({
          caption: said.title,
          columns: [
            said.created,
            said.state,
            said.progress,
            ui.end(said.failed),
            said.batch,
            { label: said.cancel, silent: true },
          ],
          rows: listed.map(batch => rowOf(visit, batch)),
          empty: ui.emptyState(said.empty),
        })}
      </div>`,
    });
  });
  account.post(
    '/batches/:id/cancel',
    { config: { permission: 'batches.cancel' } },
    async (request: FastifyRequest<{ Params: { id: string } }>, reply) => {
      const { accountId, actor } = visitOf(request);
      const batch = await batches.cancelBatchBy(request.params.id, { actor, accountId });
      if (batch === undefined) throw new PageError('notFound');
      return reply.redirect(`${PATH}?said=${batchStatus(batch)}`, 303);
    },
  );
}

const TONES = {
  queued: 'neutral',
  processing: 'accent',
  finished: 'good',
  cancelled: 'neutral',
} as const;

function rowOf(visit: Visit, batch: Batch): Child[] {
  const { words, formats } = visit;
  const { succeeded, failed, expired } = batch.counts;
  const ended = succeeded + failed + expired;
  const status = batchStatus(batch);
  const [done, all] = [ended, batch.items].map(count => formats.credits(count));
  return [
    ui.ago(batch.createdAtMs, formats.dateTime),
    ui.badge(words.batches.states[status], TONES[status]),
    html`<progress max=${batch.items} value=${ended}></progress>${' '}
      ${fill(words.batches.ended, { done: done ?? '', all: all ?? '' })}`,
    formats.credits(failed),
    ui.shortId(batch.id),
    cancellation(visit, batch),
  ];
}

function cancellation({ words, role, csrf }: Visit, batch: Batch): Child {
  const isOver = batch.cancelledAtMs !== null || batch.finishedAtMs !== null;
  if (isOver || !may(role, 'batches.cancel')) return null;
  const { cancel: label, cancelConfirm: confirm } = words.batches;
  return ui.postForm(
    { action: `${PATH}/${batch.id}/cancel`, csrf, class: 'inline' },
    ui.button({ label, kind: 'secondary', confirm, describe: `${label}: ${batch.id}` }),
  );
}
