/** One job: how it went, stage by stage, its result while it lives, and its notification. */
import type { VNode } from 'preact';
import type { JobKey, NotificationView } from '../../../../services/account-jobs/account-jobs.ts';
import type { Formats } from '../../words/formats.ts';
import { fill, type Words } from '../../words/words.ts';
import { button, linkButton } from '../components/buttons.ts';
import { postForm } from '../components/fields.ts';
import { dataTable, definitionList } from '../components/lists.ts';
import { badge, notice, time } from '../components/marks.ts';
import { resultStage } from '../components/result-stage.ts';
import { type Child, html } from '../html.ts';
import { failureText, keyName, type ShownJob, statusBadge } from './jobs-page.ts';

export interface JobPageProps {
  readonly words: Words;
  readonly formats: Formats;
  readonly csrf: string;
  /** Of this page. */
  readonly path: string;
  readonly job: ShownJob;
  readonly notification: NotificationView | undefined;
  readonly key: JobKey | undefined;
  /** Viewers see neither a picture nor a way to it. */
  readonly maySeeResult: boolean;
  readonly mayResend: boolean;
}

export function jobPage(props: JobPageProps): VNode {
  const { words, job } = props;
  return html`<div>
    ${job.failure === null ? null : notice('bad', failure(words, job.failure))}
    ${facts(props)}
    ${result(props)}
    ${stages(props)}
    ${notification(props)}
  </div>`;
}

function failure(words: Words, { code, retryable }: NonNullable<ShownJob['failure']>): string {
  const again = retryable ? words.jobs.tryAgain : words.jobs.sameAgain;
  return `${failureText(words, code)} ${again}`;
}

function facts({ words, formats, job, key }: JobPageProps): VNode {
  const said = words.jobs;
  const instant = (ms: number | null) => (ms === null ? null : time(ms, formats.exactTime(ms)));
  const isPaid = job.playgroundDayMs === null;
  return definitionList([
    [said.job, html`<span class="mono">${job.id}</span>`],
    [said.state, statusBadge(words, job.status)],
    [said.key, keyName(words, key, job.apiKeyId)],
    [said.mode, isPaid ? said.modes[job.mode] : said.playground],
    [said.credits, isPaid ? said.charged[chargeOf(job)] : said.charged.none],
    [said.created, instant(job.createdAtMs)],
    [said.started, instant(job.startedAtMs)],
    [said.finished, instant(job.finishedAtMs)],
    [said.errorCode, job.failure && html`<code>${job.failure.code}</code>`],
    [said.format, job.outputFormat.toUpperCase()],
    [said.size, sizeOf(words, formats, job)],
    [said.expires, job.status === 'succeeded' ? instant(job.expiresAtMs) : null],
  ]);
}

function chargeOf({ state }: ShownJob): 'reserved' | 'one' | 'none' {
  if (state === 'succeeded') return 'one';
  return state === 'failed' ? 'none' : 'reserved';
}

function sizeOf(words: Words, formats: Formats, { result }: ShownJob): string | null {
  if (result === null) return null;
  const { width, height, bytes } = result;
  return fill(words.playground.size, {
    width: formats.credits(width),
    height: formats.credits(height),
    bytes: formats.bytes(bytes),
  });
}

function result({ words, path, job, maySeeResult }: JobPageProps): Child {
  const said = words.jobs;
  if (job.status === 'expired') return section(said.result, html`<p class="soft">${said.gone}</p>`);
  if (job.status !== 'succeeded') return null;
  if (!maySeeResult) return section(said.result, html`<p class="soft">${said.notForViewers}</p>`);
  const href = `${path}/result`;
  return section(
    said.result,
    resultStage({ words, path: href, format: job.outputFormat }),
    html`<p class="actions">${linkButton({ href, label: words.playground.download, download: true })}</p>`,
  );
}

function stages({ words, formats, job }: JobPageProps): Child {
  const { timings } = job;
  if (timings === null) return null;
  const said = words.jobs;
  const names: Readonly<Record<string, string>> = said.stages;
  const rows = Object.entries(timings).map(([stage, ms]) => [
    names[stage] ?? stage,
    formats.duration(ms),
  ]);
  const columns = [{ label: said.stage }, { label: said.took, align: 'end' as const }];
  return section(said.times, dataTable({ caption: said.times, columns, rows }));
}

function notification(props: JobPageProps): Child {
  const { words, formats, job, notification: sent } = props;
  const said = words.jobs;
  if (job.callback === null) return null;
  if (sent === undefined) {
    const text = job.finishedAtMs === null ? said.notYet : said.notificationGone;
    return section(said.notification, html`<p class="soft">${text}</p>`);
  }
  const columns = [
    { label: said.attempt },
    { label: said.at },
    { label: said.answer },
    { label: said.took, align: 'end' as const },
  ];
  const unknown = sent.attempts - sent.log.length;
  const rows = sent.log.map(({ atMs, statusCode, durationMs }, index) => [
    String(unknown + index + 1),
    time(atMs, formats.exactTime(atMs)),
    statusCode === null ? said.noAnswer : `HTTP ${statusCode}`,
    formats.duration(durationMs),
  ]);
  const next = sent.nextAttemptAtMs;
  return section(
    said.notification,
    definitionList([
      [said.receiver, sent.receiver],
      [said.state, badge(said.statuses[sent.status], STATUS_TONES[sent.status])],
      [said.attempts, formats.credits(sent.attempts)],
      [said.nextAttempt, next === null ? null : time(next, formats.exactTime(next))],
    ]),
    rows.length === 0 ? null : dataTable({ caption: said.attempts, columns, rows }),
    unknown > 0
      ? html`<p class="hint">${fill(said.unknownAttempts, { count: unknown })}</p>`
      : null,
    resend(props, sent),
  );
}

const STATUS_TONES = { pending: 'warning', delivered: 'good', failed: 'bad' } as const;

/** A button while it can be sent again; else why not. */
function resend(
  { words, csrf, path, job, mayResend }: JobPageProps,
  sent: NotificationView,
): Child {
  const said = words.jobs;
  if (sent.status === 'delivered') return html`<p class="hint">${said.whyNot.delivered}</p>`;
  const isSigned = sent.secretEraseAtMs !== null && sent.secretEraseAtMs > job.readAtMs;
  if (!isSigned) return html`<p class="hint">${said.whyNot.erased}</p>`;
  if (!mayResend) return html`<p class="hint">${said.whyNot.role}</p>`;
  return postForm(
    { action: `${path}/resend`, csrf, class: 'actions' },
    button({ label: said.resend, kind: 'secondary' }),
  );
}

function section(title: string, ...children: Child[]): VNode {
  return html`<section class="section"><div class="section-head"><h2>${title}</h2></div>
    <div class="stack">${children}</div></section>`;
}
