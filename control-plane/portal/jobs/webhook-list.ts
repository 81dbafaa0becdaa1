import type { OperatorServices } from '@matting/core/http/app-services.ts';
import type { VNode } from 'preact';
import { type Child, html } from '../page/html.ts';
import * as ui from '../page/ui.ts';
import type { Locale } from '../session/visit.ts';
import type { Words } from '../words/words.ts';

export type OperatorNotification = Awaited<
  ReturnType<OperatorServices['operateWebhooks']['list']>
>[number];

const TONES: Readonly<Record<OperatorNotification['status'], ui.Tone>> = {
  pending: 'neutral',
  delivered: 'good',
  failed: 'bad',
};

interface Around {
  /** The page that an event is about. Null: a job's event. Undefined: there is no page. */
  readonly pathOf: (event: string | null) => string | undefined;
  /** The form that sends the webhook again. Null: it cannot be sent. */
  readonly resend: (one: OperatorNotification) => VNode | null;
  readonly empty: VNode;
}

export function webhookTable(
  found: readonly OperatorNotification[],
  { words: all, formats }: Locale,
  { pathOf, resend, empty }: Around,
): VNode {
  const { notifications: words, actions } = all.operator;
  return ui.dataTable({
    caption: words.caption,
    columns: [
      words.subject,
      words.status,
      { label: words.receiver, cut: true },
      ui.end(words.attempts),
      words.last,
      words.nextAt,
      { label: actions, silent: true, align: 'end' },
    ],
    rows: found.map(one => [
      html`${webhookSubject(one, pathOf(one.event), all)} <div class="soft">${ui.ago(one.created_at, formats.exactTime)}</div>`,
      ui.badge(words.statuses[one.status], TONES[one.status]),
      one.receiver,
      formats.credits(one.attempts),
      lastAnswer(one, { words: all, formats }),
      ui.time(one.next_attempt_at, formats.dateTime, '–'),
      resend(one),
    ]),
    empty,
  });
}

function lastAnswer(
  { last_status_code: status, last_failure: failure, last_attempt_at: at }: OperatorNotification,
  { words, formats }: Pick<Locale, 'words' | 'formats'>,
): Child {
  if (at === null) return '–';
  const why =
    failure === null ? words.operator.notifications.noAnswer : words.jobs.failures[failure];
  return html`${status === null ? why : `HTTP ${status}`}
    <div class="soft">${ui.ago(at, formats.exactTime)}</div>`;
}

function webhookSubject(
  { job_id: id, event }: OperatorNotification,
  path: string | undefined,
  words: Words,
) {
  const events: Readonly<Record<string, string>> = words.operator.notifications.events;
  const name = event === null ? words.jobs.job : (events[event] ?? event);
  const text = html`${name} <code>${id.slice(0, 8)}</code>`;
  const href = path && `${path}/${id}`;
  return href
    ? html`<a href=${href} title=${id}>${text}</a>`
    : html`<span title=${id}>${text}</span>`;
}
