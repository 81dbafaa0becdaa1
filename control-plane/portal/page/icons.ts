/** Icons on a grid of 16 units, drawn with one stroke. Words must always accompany them. */

import type { VNode } from 'preact';
import { html } from './html.ts';

const PATHS = {
  overview: 'M2.5 8.5 8 3l5.5 5.5M4 7.5V13h8V7.5',
  keys: 'M9.8 9.2a3.2 3.2 0 1 0-3-3M9.8 9.2A3.2 3.2 0 0 1 6.8 6.2M6.9 9.1 2.5 13.5M4.5 11.5l1.6 1.6',
  credits: 'M8 13.5A5.5 5.5 0 1 0 8 2.5a5.5 5.5 0 0 0 0 11ZM8 5v6M6 6.8h3a1.2 1.2 0 0 1 0 2.4H6',
  usage: 'M2.5 13.5h11M4.5 11V8M8 11V3.5M11.5 11V6',
  jobs: 'M2.5 4h11M2.5 8h11M2.5 12h7',
  described: 'M8 2.5 14 5.7 8 8.9 2 5.7ZM2.6 8.6 8 11.4l5.4-2.8M2.6 11.3 8 14l5.4-2.7',
  playground:
    'm3 13 6.5-6.5M8 3.2l.6 1.7 1.7.6-1.7.6L8 7.8M12 2.5v2.6M10.7 3.8h2.6M12.3 9.2v2.4M11.1 10.4h2.4',
  people:
    'M6 7.5a2.3 2.3 0 1 0 0-4.6 2.3 2.3 0 0 0 0 4.6ZM1.8 13.2a4.2 4.2 0 0 1 8.4 0M10.5 3.2a2.2 2.2 0 0 1 0 4.2M11.7 9.4a4 4 0 0 1 2.5 3.8',
  audit: 'M4 2.5h6l2.5 2.5v8.5H4ZM6 7h4M6 9.5h4M6 12h2',
  settings: 'M2.5 4.5h5M10.5 4.5h3M9 3v3M2.5 11.5h2M7.5 11.5h6M6 10v3',
  profile: 'M8 8a2.6 2.6 0 1 0 0-5.2A2.6 2.6 0 0 0 8 8ZM3 13.5a5 5 0 0 1 10 0',
  docs: 'M3 3h4a1.5 1.5 0 0 1 1 .5A1.5 1.5 0 0 1 9 3h4v9.5H9a1.5 1.5 0 0 0-1 .5 1.5 1.5 0 0 0-1-.5H3ZM8 3.5V13',
  picture: 'M2.5 3h11v10h-11ZM2.5 11l3.2-3.4L8 10l2.2-2.2 3.3 3.2M10.4 5.9h.1',
  webhooks: 'M4 11.5h8c-.8-.8-1-2-1-4a3 3 0 0 0-6 0c0 2-.2 3.2-1 4ZM6.8 13.5h2.4',
  nodes: 'M3 3h10v4H3ZM3 9h10v4H3ZM5.2 5h.1M5.2 11h.1',
  copy: 'M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8Z',
  menu: 'M2.5 4h11M2.5 8h11M2.5 12h11',
  out: 'M6.5 2.5h-4v11h4M6 8h7.5M10.5 5l3 3-3 3',
  down: 'm4.5 6.5 3.5 3.5 3.5-3.5',
  check: 'm3 8.5 3.2 3.2L13 4.8',
  warning: 'M8 2.5 14 13H2ZM8 6.5v3M8 11.3v.1',
  info: 'M8 13.5A5.5 5.5 0 1 0 8 2.5a5.5 5.5 0 0 0 0 11ZM8 7.5V11M8 5.2v.1',
} as const;

export type IconName = keyof typeof PATHS;

export function icon(name: IconName): VNode {
  return html`<svg class="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true"><path d=${PATHS[name]} /></svg>`;
}

export function mark(): VNode {
  return html`<svg class="mark" viewBox="0 0 20 20" width="20" height="20" aria-hidden="true">
    <rect class="mark-ground" width="20" height="20" rx="5" />
    <path class="mark-checks" d="M10 2h4v4h-4ZM14 6h4v4h-4ZM10 10h4v4h-4ZM14 14h2l2-2v-2h-4Z" />
    <path class="mark-figure" d="M2 18a6.5 6.5 0 0 1 8-6.3A3.9 3.9 0 1 1 10 4.4V18Z" />
  </svg>`;
}
