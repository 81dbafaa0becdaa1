import type { VNode } from 'preact';
import type { ButtonKind } from './buttons.ts';
import { type Child, html } from './html.ts';
import { icon } from './icons.ts';

export function section(
  props: { readonly title: string; readonly lead?: Child; readonly actions?: Child },
  ...children: Child[]
): VNode {
  const { title, lead, actions } = props;
  return html`<section class="section">
    <div class="section-head">
      <div><h2>${title}</h2>${lead ? html`<p class="lead">${lead}</p>` : null}</div>
      ${actions ? html`<div class="actions">${actions}</div>` : null}
    </div>
    ${children}
  </section>`;
}

/** Hides its content behind a button until it is opened. */
export function fold(
  props: {
    readonly label: string;
    readonly kind?: ButtonKind;
    readonly note?: string;
    readonly isOpen: boolean;
  },
  ...children: Child[]
): VNode {
  const { label, kind = 'secondary', note, isOpen } = props;
  return html`<details class="fold" open=${isOpen || undefined}>
    <summary><span class=${`button ${kind}`}>${label}${icon('down')}</span>${
      note ? html` <span class="note">${note}</span>` : null
    }</summary>
    <div class="folded">${children}</div>
  </details>`;
}

export function panel(...children: Child[]): VNode {
  return html`<div class="panel padded">${children}</div>`;
}

export type Tone = 'neutral' | 'good' | 'warning' | 'bad' | 'accent';

export function badge(label: string, tone: Tone = 'neutral'): VNode {
  return html`<span class=${`badge ${tone}`}>${label}</span>`;
}

/** Screen readers read a bad notice out at once. */
export function notice(tone: Tone, ...children: Child[]): VNode {
  const name =
    tone === 'good' ? 'check' : tone === 'bad' || tone === 'warning' ? 'warning' : 'info';
  return html`<div class=${`notice ${tone}`} role=${tone === 'bad' ? 'alert' : 'status'}>
    ${icon(name)}<div>${children}</div>
  </div>`;
}
