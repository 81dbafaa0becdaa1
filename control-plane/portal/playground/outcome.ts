import type { Job } from '@matting/core/jobs/job.ts';
import type { JobOutcome } from '@matting/core/jobs/job-outcome.ts';
import { curlSample } from '@matting/proto/contract/curl-sample.ts';
import { type JobStatus, publicState } from '@matting/queue/job.ts';
import type { VNode } from 'preact';
import { correcting, originalOf } from '../jobs/correcting.ts';
import { failureText, sizeOf, warningsText } from '../jobs/job-pages.ts';
import { hasThumbnail, thumbnail } from '../jobs/thumbnails.ts';
import { type Child, html } from '../page/html.ts';
import { ERASE_HERE, KEEP_HERE } from '../page/painter.ts';
import { resultStage } from '../page/stage.ts';
import * as ui from '../page/ui.ts';
import type { Visit } from '../session/visit.ts';
import type { Words } from '../words/words.ts';
import type { Options } from './use-playground.ts';

export function isOpen(job: JobStatus): boolean {
  return ['queued', 'processing'].includes(publicState(job));
}

interface Call {
  readonly baseUrl: string;
  readonly options: Options;
}

type OutcomeJob = JobStatus & JobOutcome & Pick<Job, 'outputFormat' | 'kept' | 'correction'>;

export function outcome(visit: Visit, job: OutcomeJob | undefined, call: Call): Child {
  if (job === undefined) return null;
  const text = visit.words.playground;
  const status = publicState(job);
  if (status === 'queued' || status === 'processing') return workingStage(visit.words, status);
  const { failure } = job;
  const cost = failure?.retryable || job.correction ? text.given : text.counted;
  const why = failure && `${failureText(visit.words, failure.code)} ${cost}`;
  return html`<section data-state=${status} tabindex="-1" aria-label=${text.outcome}>
    ${status === 'succeeded' ? [succeeded(visit, job), correctingHere(visit, job, call)] : null}
    ${status === 'failed' && why ? ui.notice('bad', why) : null}
    ${status === 'expired' ? ui.notice('neutral', text.expired) : null}
  </section>`;
}

function succeeded(visit: Visit, job: OutcomeJob): Child {
  const { words, formats } = visit;
  const text = words.playground;
  const path = `/account/playground/${job.id}/result`;
  const warned = warningsText(words, job);
  // No browser shows JPEG XL, so the page shows a thumbnail.
  const isSmall = job.outputFormat === 'jxl' && hasThumbnail(visit, job);
  return html`${isSmall ? html`<div class="cut-out">${thumbnail(visit, job, text.result)}</div>` : null}
    ${resultStage(words, path, job.outputFormat, originalOf(visit, job))}
    ${warned ? ui.notice('warning', warned) : null}
    <div class="actions result-row">
      ${ui.linkButton({ href: path, label: text.download, kind: 'primary' })}
      <span class="hint">${sizeOf(words, formats, job)}</span>
    </div>`;
}

function correctingHere(visit: Visit, job: OutcomeJob, { baseUrl, options }: Call): Child {
  const query = ui.withQuery('', Object.fromEntries(options));
  const shapes = [['keep', KEEP_HERE] as const, ['erase', ERASE_HERE] as const];
  const call = curlSample({ baseUrl, options: new Map([...options, ...shapes]) });
  return correcting(visit, job, { pageOf: id => `/account/playground/${id}`, query, call });
}

/** The script adds the seconds. Without scripts the page reloads, and says so. */
export function workingStage({ playground: text }: Words, status: 'queued' | 'processing'): VNode {
  return html`<section data-state=${status} tabindex="-1" data-sending=${text.sending} data-about=${text.about}
      data-elapsed=${text.elapsed} data-queued=${text.state.queued}
      data-processing=${text.state.processing} aria-label=${text.outcome}>
    <figure class="canvas working">
      <figcaption class="working-line"><span role="status" data-say>${text.state[status]}</span>${' '}
        <span class="soft" aria-hidden="true" data-seconds></span>
        <noscript>${text.refreshing}</noscript></figcaption>
    </figure>
  </section>`;
}
