/** The page of an account's batches, the newest first, each with how far it is. */
import type { CoreServices } from '@matting/core/package.ts';
import { type Batch, batchStatus } from '@matting/core/results/results.ts';
import type { FastifyInstance } from 'fastify';
import type { Child } from '../page/html.ts';
import { html } from '../page/html.ts';
import { renderPage } from '../page/page-frame.ts';
import * as ui from '../page/ui.ts';
import { type Visit, visitOf } from '../session/visit.ts';
import { fill } from '../words/words.ts';
import { JOBS_PATH } from './thumbnails.ts';

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
      main: html`<div>
        ${ui.dataTable({
          caption: said.title,
          columns: [said.created, said.state, said.progress, ui.end(said.failed), said.batch],
          rows: listed.map(batch => rowOf(visit, batch)),
          empty: ui.emptyState(said.empty),
        })}
      </div>`,
    });
  });
}

const TONES = {
  queued: 'neutral',
  processing: 'accent',
  finished: 'good',
  cancelled: 'neutral',
} as const;

function rowOf({ words, formats }: Visit, batch: Batch): Child[] {
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
  ];
}
