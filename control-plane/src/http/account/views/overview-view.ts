/** The first page of an account: its credits, its use, what runs, what failed, and how to begin. */
import type { VNode } from 'preact';
import type { Formats } from '../words/formats.ts';
import { fill, type Words } from '../words/words.ts';
import { linkButton } from './components/buttons.ts';
import { dataTable, figures, panel, section } from './components/lists.ts';
import { badge, codeBlock, notice, time } from './components/marks.ts';
import { type Child, html } from './html.ts';
import { type UsageDay, usageChart } from './usage-chart.ts';

export interface OverviewProps {
  readonly words: Words;
  readonly formats: Formats;
  readonly available: number;
  readonly reserved: number;
  readonly chargedThisMonth: number;
  readonly monthBeganMs: number;
  readonly from: string;
  readonly to: string;
  readonly days: readonly UsageDay[];
  readonly running: readonly {
    readonly id: string;
    readonly state: 'queued' | 'processing';
    readonly createdAtMs: number;
  }[];
  readonly failures: readonly {
    readonly id: string;
    readonly code: string;
    readonly endedAtMs: number;
  }[];
  /** Where the API is: the origin of the addresses that the service makes. */
  readonly apiUrl: string;
  readonly mayOrder: boolean;
  readonly mayMakeKeys: boolean;
}

export function overviewPage(props: OverviewProps): VNode {
  const { words, formats } = props;
  const { overview } = words;
  const title = overview.usageTitle;
  return html`<div>
    ${emptyNotice(props)}
    ${figures(creditFigures(props))}
    ${section(
      {
        title: overview.usage,
        actions: linkButton({ href: '/account/usage', label: overview.moreUsage }),
      },
      panel(usageChart({ ...props, title })),
    )}
    ${section(
      { title: overview.running, actions: moreJobs(words) },
      dataTable({
        caption: overview.running,
        columns: [{ label: overview.job }, { label: overview.state }, { label: overview.since }],
        rows: props.running.map(({ id, state, createdAtMs }) => [
          jobLink(id),
          badge(overview.states[state], state === 'processing' ? 'accent' : 'neutral'),
          time(createdAtMs, formats.exactTime(createdAtMs)),
        ]),
        empty: html`<p class="padded soft">${overview.runningNone}</p>`,
      }),
    )}
    ${section({ title: overview.failures, lead: overview.failuresLead }, failureTable(props))}
    ${firstPicture(props)}
  </div>`;
}

function emptyNotice({ words, available, mayOrder }: OverviewProps): Child {
  if (available > 0) return null;
  const { overview } = words;
  return notice(
    'bad',
    html`<p>${overview.empty}</p>
      ${mayOrder ? html`<p><a href="/account/orders/packages">${overview.low}</a></p>` : null}`,
  );
}

function creditFigures(props: OverviewProps) {
  const { words, formats, available, reserved, chargedThisMonth, monthBeganMs } = props;
  const { overview } = words;
  const since = fill(overview.chargedNote, { date: formats.date(monthBeganMs) });
  return [
    {
      label: overview.available,
      value: formats.credits(available),
      note: overview.availableNote,
    },
    { label: overview.reserved, value: formats.credits(reserved), note: overview.reservedNote },
    { label: overview.charged, value: formats.credits(chargedThisMonth), note: since },
  ];
}

function moreJobs({ overview }: Words): VNode {
  return linkButton({ href: '/account/jobs', label: overview.moreJobs });
}

function jobLink(id: string): VNode {
  return html`<a href=${`/account/jobs/${id}`}><code>${id}</code></a>`;
}

function failureTable({ words, formats, failures }: OverviewProps): VNode {
  const { overview } = words;
  return dataTable({
    caption: overview.failures,
    columns: [{ label: overview.job }, { label: overview.why }, { label: overview.time }],
    rows: failures.map(({ id, code, endedAtMs }) => [
      jobLink(id),
      failureWords(words, code),
      time(endedAtMs, formats.exactTime(endedAtMs)),
    ]),
    empty: html`<p class="padded soft">${overview.failuresNone}</p>`,
  });
}

/** A failed job's code in plain words. */
export function failureWords({ failures }: Words, code: string): string {
  const known: Readonly<Record<string, string>> = failures;
  const words = code !== 'other' && Object.hasOwn(known, code) ? known[code] : undefined;
  return words ?? fill(failures.other, { code });
}

const KEY_PLACE = 'YOUR_API_KEY';

function firstPicture({ words, apiUrl, mayMakeKeys }: OverviewProps): VNode {
  const { overview, common } = words;
  const actions = mayMakeKeys
    ? linkButton({ href: '/account/keys', label: overview.makeKey })
    : null;
  return section(
    { title: overview.curl, lead: fill(overview.curlLead, { key: KEY_PLACE }), actions },
    codeBlock(curlLine(apiUrl), common, overview.curlLabel),
  );
}

/** One line that works when pasted, whatever the shell; a picture has a key of its own. */
function curlLine(apiUrl: string): string {
  return [
    `curl -fsS '${apiUrl}/v1/matting' -H 'Authorization: Bearer ${KEY_PLACE}'`,
    `-H "Idempotency-Key: photo-$(date +%s)" -H 'Accept: image/png'`,
    '-F image_file=@photo.jpg -o cutout.png',
  ].join(' ');
}
