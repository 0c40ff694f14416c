// Charts of turns: the column at which a person points. A line over the columns must not hide them.

export function findColumn(chart, event) {
  const box = chart.getBoundingClientRect();
  const columns = [...chart.querySelectorAll(".turn")];
  const place = Math.floor(((event.clientX - box.left) / box.width) * columns.length);
  return columns[Math.max(0, Math.min(columns.length - 1, place))];
}
