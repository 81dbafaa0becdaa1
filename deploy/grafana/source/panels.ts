/**
 * Panels and dashboards of the service by Grafana's own builders. A panel is a title, what it says,
 * a unit and queries; its place on the page follows from the order.
 */
import {
  type PanelBuilder as AnyPanelBuilder,
  type Dashboard,
  DashboardBuilder,
  DatasourceVariableBuilder,
  RowBuilder,
} from '@grafana/grafana-foundation-sdk/dashboard';
import { DataqueryBuilder } from '@grafana/grafana-foundation-sdk/prometheus';
import { PanelBuilder as StatBuilder } from '@grafana/grafana-foundation-sdk/stat';
import { PanelBuilder as TimeseriesBuilder } from '@grafana/grafana-foundation-sdk/timeseries';

/** Units as Grafana names them. */
export type Unit =
  | 's'
  | 'short'
  | 'bytes'
  | 'Bps'
  | 'percentunit'
  | 'percent'
  | 'reqps'
  | 'watt'
  | 'celsius'
  | 'hertz'
  | 'dtdurations';

export interface Query {
  readonly expr: string;
  /** Grafana's template of labels; the labels themselves where absent. */
  readonly legend?: string;
}

export interface Panel {
  readonly title: string;
  /** The description and what is right: it is shown at the panel's corner. */
  readonly says: string;
  readonly unit: Unit;
  readonly queries: readonly Query[];
  /** One number instead of lines. */
  readonly number?: true;
  /** The panel takes so many of the 24 columns; 8, or 4 for a number, where absent. */
  readonly columns?: number;
}

export interface Row {
  readonly title: string;
  readonly panels: readonly Panel[];
}

export interface Page {
  readonly uid: string;
  readonly title: string;
  readonly says: string;
  /** The form is `now-6h`. */
  readonly from: string;
  readonly rows: readonly Row[];
}

const COLUMNS = 24;
const PANEL_ROWS = 8;
const NUMBER_ROWS = 4;
/** The one that the reader chooses at the top of the page. */
const DATASOURCE = { type: 'prometheus', uid: '$datasource' };

export function dashboardOf(page: Page): Dashboard {
  const builder = new DashboardBuilder(page.title)
    .uid(page.uid)
    .description(page.says)
    .tags(['matting'])
    .refresh('30s')
    .time({ from: page.from, to: 'now' })
    .timezone('utc')
    .withVariable(
      new DatasourceVariableBuilder('datasource').label('Prometheus').type('prometheus'),
    );
  let id = 0;
  for (const row of page.rows) {
    id += 1;
    builder.withRow(new RowBuilder(row.title).id(id));
    for (const panel of row.panels) {
      id += 1;
      builder.withPanel(panelOf(panel, id));
    }
  }
  return builder.build();
}

function panelOf(of: Panel, id: number): AnyPanelBuilder {
  const { title, says, unit, queries, number, columns } = of;
  const panel = number ? new StatBuilder() : new TimeseriesBuilder().min(0);
  panel
    .id(id)
    .title(title)
    .description(says)
    .unit(unit)
    .datasource(DATASOURCE)
    .height(number ? NUMBER_ROWS : PANEL_ROWS)
    .span(columns ?? (number ? COLUMNS / 6 : COLUMNS / 3));
  for (const { expr, legend } of queries) {
    const query = new DataqueryBuilder().expr(expr).datasource(DATASOURCE);
    if (legend !== undefined) query.legendFormat(legend);
    panel.withTarget(query);
  }
  return panel as unknown as AnyPanelBuilder;
}
