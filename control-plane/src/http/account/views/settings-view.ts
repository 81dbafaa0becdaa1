/** What an owner sets: balances that are told, and the address that events go to. */
import type { VNode } from 'preact';
import type { Formats } from '../words/formats.ts';
import { fill, type Words } from '../words/words.ts';
import { button } from './components/buttons.ts';
import { checkbox, postForm, textField } from './components/fields.ts';
import { dataTable, panel, section } from './components/lists.ts';
import { codeBlock, notice, time } from './components/marks.ts';
import { type Child, html } from './html.ts';

export interface DeliveryRow {
  readonly status: 'pending' | 'delivered' | 'failed';
  readonly attempts: number;
  readonly lastStatusCode: number | null;
}

export interface SettingsProps {
  readonly words: Words;
  readonly formats: Formats;
  readonly csrf: string;
  readonly thresholds: readonly {
    readonly threshold: number;
    readonly toldAtMs: number | null;
    readonly delivery: DeliveryRow | null;
  }[];
  /** How many fields for thresholds there are. */
  readonly thresholdsMax: number;
  /** The forms again, where they were not accepted. */
  readonly typedThresholds?: readonly string[];
  readonly thresholdsError?: string;
  readonly typedUrl?: string;
  readonly urlError?: string;
  readonly webhook: { readonly url: string; readonly readable: boolean } | null;
  readonly test: DeliveryRow | null;
  /** Shown this once. */
  readonly secret?: string | undefined;
  readonly owners: readonly string[];
  /** Whether the service sends mail. */
  readonly mails: boolean;
  /** How many it sends a day, where it has sent them; undefined: some are left. */
  readonly mailsUsedUp: number | undefined;
}

const PATH = '/account/settings';

export function settingsPage(props: SettingsProps): VNode {
  const { words, secret } = props;
  const { settings, common } = words;
  return html`<div class="stack">
    ${
      secret === undefined
        ? null
        : notice(
            'good',
            html`<p>${settings.secretMade}</p>
              ${codeBlock(secret, common, settings.secretLabel)}`,
          )
    }
    ${section({ title: settings.low, lead: settings.lowLead }, told(props), thresholdForm(props))}
    ${section({ title: settings.mails, lead: settings.mailsLead }, mailList(props))}
    ${section({ title: settings.webhook, lead: settings.webhookLead }, webhookPart(props))}
  </div>`;
}

function told({ words, formats, thresholds }: SettingsProps): VNode {
  const { settings } = words;
  const columns = [
    { label: settings.credits },
    { label: settings.state },
    { label: settings.delivery },
  ];
  const rows = thresholds.map(({ threshold, toldAtMs, delivery }) => [
    formats.credits(threshold),
    toldAtMs === null ? settings.armed : toldWords(words, formats, toldAtMs),
    delivery === null ? null : deliveryWords(words, delivery),
  ]);
  const empty = html`<p class="padded soft">${settings.none}</p>`;
  return dataTable({ caption: settings.thresholds, columns, rows, empty });
}

function toldWords({ settings }: Words, formats: Formats, atMs: number): Child {
  const [before = '', after = ''] = settings.told.split('{time}');
  return html`${before}${time(atMs, formats.dateTime(atMs))}${after}`;
}

function deliveryWords({ settings }: Words, delivery: DeliveryRow): string {
  const { status, attempts, lastStatusCode } = delivery;
  const state = fill(settings.deliveries[status], { attempts });
  if (status === 'delivered' || lastStatusCode === null) return state;
  return `${state}, ${fill(settings.answer, { status: lastStatusCode })}`;
}

function thresholdForm(props: SettingsProps): VNode {
  const { words, csrf, thresholds, thresholdsMax, thresholdsError } = props;
  const { settings } = words;
  const values = props.typedThresholds ?? thresholds.map(({ threshold }) => String(threshold));
  const fields = Array.from({ length: thresholdsMax }, (_, index) =>
    textField({
      name: 'threshold',
      id: `threshold-${index + 1}`,
      label: fill(settings.threshold, { number: index + 1 }),
      value: values[index] ?? '',
      inputmode: 'numeric',
      maxlength: 10,
      autocomplete: 'off',
      error: index === 0 ? thresholdsError : undefined,
    }),
  );
  return panel(
    postForm(
      { action: `${PATH}/thresholds`, csrf },
      html`<div class="row">${fields}</div>`,
      button({ label: settings.saveThresholds }),
    ),
  );
}

function mailList({ words, owners, mails, mailsUsedUp }: SettingsProps): VNode {
  const { settings } = words;
  if (!mails) return notice('warning', settings.mailsOff);
  if (owners.length === 0) return notice('warning', settings.noOwners);
  const list = panel(html`<ul>${owners.map(mail => html`<li>${mail}</li>`)}</ul>`);
  if (mailsUsedUp === undefined) return list;
  return html`<div class="stack">
    ${notice('warning', fill(settings.mailsUsedUp, { count: mailsUsedUp }))}${list}
  </div>`;
}

function webhookPart(props: SettingsProps): VNode {
  const { words, webhook, test } = props;
  const { settings } = words;
  return html`<div class="stack">
    ${webhook?.readable === false ? notice('bad', settings.unreadable) : null}
    ${panel(webhookForm(props))}
    ${
      webhook === null
        ? null
        : panel(
            test === null
              ? null
              : html`<p>${fill(settings.lastTest, { state: deliveryWords(words, test) })}</p>`,
            html`<div class="actions">${webhookActions(props)}</div>`,
          )
    }
  </div>`;
}

function webhookForm({ words, csrf, webhook, typedUrl, urlError }: SettingsProps): VNode {
  const { settings } = words;
  return postForm(
    { action: `${PATH}/webhook`, csrf },
    textField({
      name: 'url',
      label: settings.url,
      type: 'url',
      hint: settings.urlHint,
      value: typedUrl ?? webhook?.url ?? '',
      error: urlError,
      required: true,
      maxlength: 2048,
      autocomplete: 'off',
    }),
    webhook === null
      ? null
      : checkbox({
          name: 'new_secret',
          label: settings.newSecret,
          hint: settings.newSecretHint,
          checked: !webhook.readable,
        }),
    button({ label: settings.saveWebhook }),
  );
}

function webhookActions({ words, csrf }: SettingsProps): VNode[] {
  const { settings } = words;
  return [
    postForm(
      { action: `${PATH}/webhook/test`, csrf, class: 'inline' },
      button({ label: settings.test, kind: 'secondary' }),
    ),
    postForm(
      { action: `${PATH}/webhook/remove`, csrf, class: 'inline' },
      button({
        label: settings.removeWebhook,
        kind: 'danger',
        confirm: settings.removeConfirm,
      }),
    ),
  ];
}
