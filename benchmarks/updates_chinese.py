"""Chinese updates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from benchmarks.updates_words import Domain

__all__ = ["DOMAINS"]

DOMAINS: Final[Mapping[str, Domain]] = {
    "port": Domain(
        things=(
            ("支付服务", "8080", "9090"),
            ("测试环境的网关", "7001", "7443"),
            ("Grafana", "3000", "3300"),
            ("订单 API", "8001", "8443"),
            ("消息推送服务", "6001", "6443"),
        ),
        before=(
            "{s}的端口是 {a}。",
            "{s}监听 {a} 端口。",
            "记住，{s}运行在 {a} 端口。",
            "{s}端口：{a}",
        ),
        after=(
            "{s}的端口改成 {b} 了。",
            "我们把{s}的端口从 {a} 改为 {b}。",
            "{s}现在监听 {b} 端口。",
            "更正：{s}的端口是 {b}，不是 {a}。",
            "把{s}的端口设为 {b}。",
        ),
        question="{s}的端口是多少？",
    ),
    "path": Domain(
        things=(
            ("数据库备份", "/var/backups/db", "/srv/backups/db"),
            ("审计日志", "/var/log/audit", "/data/audit"),
            ("模型权重", "/models/v1", "/mnt/nas/models"),
            ("前端构建产物", "dist/web", "build/output"),
            ("证书文件", "/etc/ssl/private", "/opt/certs"),
        ),
        before=(
            "{s}存放在 {a}。",
            "{s}保存在 {a} 目录下。",
            "{s}的路径是 {a}。",
        ),
        after=(
            "{s}现在存放在 {b}。",
            "我们把{s}从 {a} 迁移到 {b}。",
            "{s}已经移到 {b}。",
            "{s}的路径改为 {b}。",
        ),
        question="{s}存放在哪里？",
    ),
    "version": Domain(
        things=(
            ("Python", "3.11", "3.13"),
            ("前端框架", "2.7", "3.4"),
            ("MySQL", "5.7", "8.4"),
            ("推理引擎", "0.4.1", "0.6.0"),
            ("集群的 Kubernetes", "1.27", "1.30"),
        ),
        before=(
            "{s}的版本是 {a}。",
            "{s}版本为 {a}。",
            "我们用的{s}版本是 {a}。",
        ),
        after=(
            "{s}升级到 {b} 了。",
            "我们把{s}从 {a} 升级到 {b}。",
            "{s}的版本现在是 {b}。",
            "{s}的版本改为 {b}。",
        ),
        question="{s}的版本是多少？",
    ),
    "name": Domain(
        things=(
            ("内部项目", "蓝鸟", "红隼"),
            ("主仓库", "core-monorepo", "platform"),
            ("发布分支", "release-7", "stable"),
            ("订单表", "orders_v1", "customer_orders"),
            ("客服机器人", "小海", "阿帆"),
        ),
        before=(
            "{s}的名字是{a}。",
            "{s}叫{a}。",
            "{s}的名称是 {a}。",
        ),
        after=(
            "{s}改名为{b}。",
            "{s}的名字改成{b}了。",
            "{s}现在叫{b}。",
            "我们把{s}的名称从{a}改为{b}。",
        ),
        question="{s}的名字是什么？",
    ),
    "owner": Domain(
        things=(
            ("支付模块", "张伟", "李娜"),
            ("搜索服务", "王芳", "赵强"),
            ("移动端", "陈静", "刘洋"),
            ("新人文档", "周杰", "吴敏"),
            ("值班排期", "孙丽", "黄磊"),
        ),
        before=(
            "{s}由{a}负责。",
            "{a}负责{s}。",
            "{s}的负责人是{a}。",
        ),
        after=(
            "{s}现在由{b}负责。",
            "{s}的负责人换成了{b}。",
            "{s}的负责人改为{b}。",
            "{s}已经交给{b}负责。",
        ),
        question="{s}的负责人是谁？",
    ),
    "deadline": Domain(
        things=(
            ("公测", "3月3日", "4月14日"),
            ("安全审计", "6月12日", "7月1日"),
            ("项目结题", "2026-05-02", "2026-05-30"),
            ("论文初稿", "周五", "下周三"),
        ),
        before=(
            "{s}的截止日期是{a}。",
            "{s}截止日期：{a}",
            "注意，{s}的截止时间是{a}。",
        ),
        after=(
            "{s}的截止日期改到{b}。",
            "{s}推迟到{b}。",
            "{s}的截止日期现在是{b}。",
            "{s}的截止日期从{a}延长到{b}。",
        ),
        question="{s}的截止日期是什么时候？",
    ),
    "date": Domain(
        things=(
            ("团建活动", "周五", "下周三"),
            ("季度评审", "周一", "周四"),
            ("产品演示", "3月10日", "3月24日"),
            ("停机维护", "凌晨2点", "凌晨4点"),
        ),
        before=(
            "{s}定在{a}。",
            "{s}的时间是{a}。",
            "{s}安排在{a}。",
        ),
        after=(
            "{s}推迟到{b}。",
            "{s}的时间从{a}改为{b}。",
            "{s}改到{b}了。",
            "{s}现在定在{b}。",
        ),
        question="{s}定在什么时间？",
    ),
    "preference": Domain(
        things=(
            ("缩进", "制表符", "空格"),
            ("提交信息", "英文", "中文"),
            ("画图", "Mermaid", "Graphviz"),
            ("变量命名", "驼峰", "下划线"),
            ("回复", "长文", "要点列表"),
        ),
        before=(
            "{s}我喜欢用{a}。",
            "我偏好用{a}做{s}。",
            "{s}请一律用{a}。",
        ),
        after=(
            "{s}我现在喜欢用{b}。",
            "{s}以后请用{b}。",
            "{s}改用{b}。",
            "{s}不要用{a}了，改用{b}。",
        ),
        question="{s}我喜欢用什么？",
    ),
    "place": Domain(
        things=(
            ("分析集群", "法兰克福", "都柏林"),
            ("官网", "阿里云", "腾讯云"),
            ("客服团队", "成都", "武汉"),
            ("训练任务", "上海机房", "内蒙古机房"),
            ("冷备数据", "北京", "贵阳"),
        ),
        before=(
            "{s}部署在{a}。",
            "{s}位于{a}。",
            "{s}的位置是{a}。",
        ),
        after=(
            "{s}迁到了{b}。",
            "{s}现在部署在{b}。",
            "我们把{s}从{a}迁移到{b}。",
            "{s}已经搬到{b}。",
        ),
        question="{s}部署在哪里？",
    ),
    "status": Domain(
        things=(
            ("退款流程", "进行中", "已完成"),
            ("数据迁移", "被阻塞", "已完成"),
            ("登录改版", "未开始", "评审中"),
            ("压力测试", "失败", "通过"),
            ("工单 OPS-412", "未关闭", "已关闭"),
        ),
        before=(
            "{s}的状态是{a}。",
            "{s}目前{a}。",
            "{s}状态：{a}",
        ),
        after=(
            "{s}的状态变成{b}了。",
            "{s}的状态是{b}。",
            "{s}现在{b}。",
            "{s}的状态从{a}改为{b}。",
        ),
        question="{s}的状态是什么？",
    ),
    "url": Domain(
        things=(
            ("接口文档", "https://docs.acme.test/v1", "https://api.acme.test/reference"),
            ("状态页", "https://status.acme.test", "https://up.acme.test/now"),
            ("测试看板", "http://dash.stage.test:3000", "https://dash2.stage.test"),
            ("设计维基", "https://wiki.acme.test/design", "https://notes.acme.test/design"),
            ("私有镜像源", "https://npm.acme.test", "https://registry.acme.test/npm"),
        ),
        before=(
            "{s}的地址是 {a} 。",
            "{s}的网址：{a}",
            "{s}的链接是 {a}",
        ),
        after=(
            "{s}的地址改为 {b} 。",
            "{s}的网址换成 {b}",
            "{s}的地址现在是 {b}",
            "{s}的新链接是 {b}",
        ),
        question="{s}的地址是什么？",
    ),
    "choice": Domain(
        things=(
            ("后台任务", "Celery", "Temporal"),
            ("持续集成", "Jenkins", "GitHub Actions"),
            ("错误监控", "Sentry", "GlitchTip"),
            ("消息队列", "RabbitMQ", "NATS"),
            ("端到端测试", "Cypress", "Playwright"),
        ),
        before=(
            "{s}用 {a}。",
            "我们决定{s}用 {a}。",
            "{s}采用 {a}。",
        ),
        after=(
            "{s}改用 {b}。",
            "{s}从 {a} 换成 {b} 了。",
            "我们决定{s}改用 {b}。",
            "{s}现在用 {b}。",
        ),
        question="{s}用什么？",
    ),
    "limit": Domain(
        things=(
            ("上传接口", "10 MB", "25 MB"),
            ("会话", "30 分钟", "8 小时"),
            ("公开接口", "100", "250"),
            ("工作进程", "4", "16"),
            ("重试队列", "5 秒", "90 秒"),
        ),
        before=(
            "{s}的上限是 {a}。",
            "{s}的上限设为 {a}。",
            "{s}上限：{a}",
        ),
        after=(
            "{s}的上限调到 {b}。",
            "{s}的上限改成 {b} 了。",
            "我们把{s}的上限从 {a} 提高到 {b}。",
        ),
        question="{s}的上限是多少？",
    ),
}
